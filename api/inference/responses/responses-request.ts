import { addIgnoredFields } from '#api/http/validation.ts'
import { type ChatRequest, chatInput } from '#api/inference/chat/chat-request.ts'
import {
  checkedSchema,
  customNamesOf,
  definitionOf,
  planOf,
  type ToolPlan,
} from '#api/inference/chat/chat-tools.ts'
import { customDefinition } from '#api/inference/chat/custom-tools.ts'
import { invalidValue } from '#api/inference/field-schemas.ts'
import { SchemaBudget } from '#api/inference/input-limits.ts'
import { reasoningGuidance } from '#api/inference/reasoning-fields.ts'
import { RequestImages } from '#api/inference/request-images.ts'
import { mentionsJson } from '#api/inference/response-format.ts'
import {
  maxTokensOf,
  samplingParams,
  stopStrings,
  unsetSampling,
} from '#api/inference/sampling-fields.ts'
import { checkMetadata } from '#api/v1/metadata-field.ts'
import type { ResponseFormat, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

import { hiddenItems } from './hosted-items.ts'
import {
  type CalledTool,
  INCLUDED_OF_TOOLS,
  LOGPROBS,
  type NamedTool,
  type ResponsesBody,
  type ToolChoiceField,
} from './responses-body.ts'
import { type InputField, responsesMessages } from './responses-input.ts'
import type { OpenSummary } from './summaries.ts'
import { offeredTools } from './tool-namespaces.ts'

/**
 * Reads a request for a response; `earlier` holds the items of the conversation that it continues.
 * Throws for faults that the schema cannot express.
 */
export function responsesRequest(
  body: ResponsesBody,
  {
    earlier = [],
    asked: askedInput = body.input,
    openSummary,
  }: {
    readonly earlier?: Items
    /** The input with stored items in place of references. */
    readonly asked?: InputField
    readonly openSummary: OpenSummary
  },
): ChatRequest {
  checkStreamOptions(body)
  checkMetadata(body.metadata)
  const input = earlier.length === 0 ? askedInput : [...earlier, ...itemsOf(askedInput)]
  const images = new RequestImages()
  const { instructions } = body
  const messages = responsesMessages(input, { instructions, images, openSummary })
  const budget = new SchemaBudget()
  const tools = toolsOf(body, budget)
  const asked = {
    temperature: body.temperature ?? null,
    top_p: body.top_p ?? null,
    top_k: body.top_k ?? null,
    seed: body.seed ?? null,
  }
  const chat = chatInput({
    messages,
    tools,
    n: 1,
    maxTokens: maxTokensOf(body.max_output_tokens, 'max_output_tokens'),
    sampling: samplingParams(asked),
    ...unsetSampling(asked),
    stop: stopStrings(body.stop),
    ...guidanceOf(body),
    logprobs: logprobsOf(body),
    responseFormat: responseFormatOf(body, budget),
    stream: body.stream ?? false,
    isTruncated: body.truncation === 'auto',
  })
  const hidden = hiddenItems(itemsOf(body.input))
  addIgnoredFields(body, [...budget.ignored, ...hidden, ...ignoredOf(body)])
  return { input: chat, tools, images }
}

function guidanceOf({ reasoning, text }: ResponsesBody): Pick<ChatOptions, 'template' | 'hints'> {
  const { variables, hints } = reasoningGuidance({
    effort: { field: 'reasoning.effort', value: reasoning?.effort },
    verbosity: { field: 'text.verbosity', value: text?.verbosity },
  })
  return hints.length > 0 ? { template: { variables }, hints } : {}
}

type ChatOptions = Parameters<typeof chatInput>[0]

type Items = Exclude<InputField, string>

/** The input as items. */
export function itemsOf(input: InputField): Items {
  if (typeof input !== 'string') return input
  return [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: input }] }]
}

/** Refuses fields that need stored responses where there are none, as in a batch. */
export function checkUnstored(body: ResponsesBody): void {
  const fields = ['background', 'previous_response_id', 'conversation'] as const
  for (const param of fields) {
    const value = body[param]
    if (value === null || value === undefined || value === false) continue
    throw failure.invalidRequest(
      `Unsupported parameter: '${param}' is not supported here. Send the whole conversation as 'input'.`,
      { param, code: 'unsupported_parameter' },
    )
  }
}

function checkStreamOptions({ stream, stream_options: options }: ResponsesBody): void {
  if (stream === true || options === null || options === undefined) return
  throw failure.invalidRequest(
    "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    { param: 'stream_options', code: 'invalid_value' },
  )
}

function toolsOf(body: ResponsesBody, budget: SchemaBudget): ToolPlan | undefined {
  const { tools, tool_choice: choice, parallel_tool_calls: parallel } = body
  if (tools === null || tools === undefined || tools.length === 0) {
    const isCallDemanded = choice === 'required' || typeof choice === 'object'
    if (!isCallDemanded || choice === null) return undefined
    throw invalidValue('tool_choice', "'tool_choice' is only allowed when 'tools' are specified.")
  }
  const offered = offeredTools(tools)
  const definitions = offered.map(({ tool, path }) => definitionFrom(tool, path, budget))
  const origins = offered.flatMap(({ tool: { name }, origin }) =>
    origin === undefined ? [] : [[name, origin] as const],
  )
  const asked = {
    parallel_tool_calls: parallel ?? null,
    tool_choice: asChatChoice(choice ?? null),
  }
  const customNames = customNamesOf(
    definitions,
    offered.map(({ tool }) => tool),
  )
  const plan = planOf(definitions, asked, customNames)
  return origins.length === 0 ? plan : { ...plan, origins: new Map(origins) }
}

function definitionFrom(tool: CalledTool, path: string, budget: SchemaBudget): ToolDefinition {
  if (tool.type === 'function') return definitionOf(tool, `${path}.parameters`, budget)
  const { name, description, format } = tool
  const grammar = format?.type === 'grammar' ? format : undefined
  return customDefinition({ name, description, grammar }, `${path}.format`, budget)
}

type ChatToolChoice = Exclude<Parameters<typeof planOf>[1]['tool_choice'], undefined>

/** The choice in the spelling of chat completions. */
function asChatChoice(choice: ToolChoiceField | null): ChatToolChoice {
  if (choice === null || typeof choice === 'string') return choice
  const nested = ({ type, name }: NamedTool) =>
    type === 'custom' ? { type, custom: { name } } : { type, function: { name } }
  if (choice.type !== 'allowed_tools') return nested(choice)
  const { mode, tools } = choice
  return { type: 'allowed_tools', allowed_tools: { mode, tools: tools.map(nested) } }
}

function logprobsOf({ include, top_logprobs: count }: ResponsesBody): number | null {
  return include?.includes(LOGPROBS) === true ? (count ?? 0) : null
}

/** Fields about tools that are not run here, and about log-probabilities that are not returned. */
function ignoredOf(body: ResponsesBody): string[] {
  const included = (body.include ?? []).flatMap((value, index) =>
    INCLUDED_OF_TOOLS.includes(value) ? [`include[${index}]`] : [],
  )
  const isTopIgnored = Boolean(body.top_logprobs) && logprobsOf(body) === null
  return isTopIgnored ? [...included, 'top_logprobs'] : included
}

function responseFormatOf(
  { text, input, instructions }: ResponsesBody,
  budget: SchemaBudget,
): ResponseFormat {
  const format = text?.format ?? { type: 'text' }
  switch (format.type) {
    case 'text':
      return { type: 'text' }
    case 'json_object':
      if (!mentionsJson([input, instructions])) {
        throw failure.invalidRequest(
          "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.",
          { param: 'input' },
        )
      }
      return { type: 'jsonObject' }
    case 'json_schema':
      return {
        type: 'jsonSchema',
        schema: checkedSchema(format.schema, format.strict, {
          param: 'text.format.schema',
          budget,
        }),
        path: 'text.format.schema',
        ...(format.strict === true && { isStrict: true }),
      }
  }
}
