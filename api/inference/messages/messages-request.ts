import { addIgnoredFields } from '#api/http/validation.ts'
import { type ChatRequest, chatInput } from '#api/inference/chat/chat-request.ts'
import { definitionOf, planOf, type ToolPlan } from '#api/inference/chat/chat-tools.ts'
import { invalidValue, missingParameter } from '#api/inference/field-schemas.ts'
import { SchemaBudget } from '#api/inference/input-limits.ts'
import { reasoningGuidance } from '#api/inference/reasoning-fields.ts'
import { RequestImages } from '#api/inference/request-images.ts'
import { samplingParams, unsetSampling } from '#api/inference/sampling-fields.ts'
import type { GenerateInput, ResponseFormat, TokenizeInput } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

import { clientToolOf } from './client-tools.ts'
import type { CountBody, MessagesBody, ToolChoiceField, ToolField } from './messages-body.ts'
import { threadsUnsupported } from './messages-errors.ts'
import { conversationOf } from './messages-input.ts'

/** Reads a request for a message. Throws for faults that the schema cannot express. */
export function messagesRequest(body: MessagesBody): ChatRequest {
  refuseServerState(body)
  const budget = new SchemaBudget()
  const images = new RequestImages()
  const messages = conversationOf(body.messages, body.system, images)
  const tools = toolsOf(body, budget)
  const stop = body.stop_sequences ?? []
  const asked = {
    temperature: body.temperature ?? null,
    top_p: body.top_p ?? null,
    top_k: body.top_k ?? null,
  }
  const input: GenerateInput = chatInput({
    messages,
    tools,
    n: 1,
    maxTokens: body.max_tokens,
    sampling: samplingParams(asked),
    ...unsetSampling(asked),
    stop,
    // The answer names the matched stop sequence, so its end must be visible.
    ...(stop.length > 0 && { ending: { keepsStopString: true } }),
    ...guidanceOf(body, messages.at(-1)?.role === 'assistant'),
    logprobs: null,
    responseFormat: responseFormatOf(body, budget),
    stream: body.stream ?? false,
  })
  addIgnoredFields(body, budget.ignored)
  return { input, tools, images }
}

/** Refuses fields that would change the answer if they were ignored. */
function refuseServerState({ thread, compaction, mcp_servers: servers }: MessagesBody): void {
  if (thread !== undefined && thread !== null) throw threadsUnsupported()
  if (compaction !== undefined && compaction !== null) {
    throw invalidValue('compaction', 'it is not supported. Ask for a summary in a message.')
  }
  if (!Array.isArray(servers) || servers.length === 0) return
  throw invalidValue(
    'mcp_servers',
    'servers are not called from here. Offer their tools as tools of your own.',
  )
}

function guidanceOf(
  { thinking, output_config: config }: MessagesBody,
  continuesLast: boolean,
): Pick<Parameters<typeof chatInput>[0], 'template' | 'hints'> {
  const guidance = reasoningGuidance({
    effort: { field: 'output_config.effort', value: config?.effort },
    tokensMax: { field: 'thinking.budget_tokens', value: thinking?.budget_tokens },
  })
  const isOn = thinking?.type !== 'disabled'
  const variables = {
    ...guidance.variables,
    ...(thinking && { enable_thinking: isOn, thinking: isOn }),
  }
  const template = {
    ...(continuesLast && { continuesLast }),
    ...(Object.keys(variables).length > 0 && { variables }),
  }
  return {
    ...(Object.keys(template).length > 0 && { template }),
    ...(guidance.hints.length > 0 && { hints: guidance.hints }),
  }
}

/** The prompt whose tokens are counted; its images are added to `images`. */
export function countedPrompt(body: CountBody, images: RequestImages): TokenizeInput['prompt'] {
  const messages = conversationOf(body.messages, body.system, images)
  const tools = toolsOf(body, new SchemaBudget())
  return {
    form: 'chat',
    messages,
    ...(tools !== undefined && { tools: tools.tools, toolChoice: tools.choice }),
  }
}

function toolsOf(
  { tools, tool_choice: choice }: CountBody,
  budget: SchemaBudget,
): ToolPlan | undefined {
  if (!tools || tools.length === 0) {
    if (!choice || choice.type === 'auto' || choice.type === 'none') return undefined
    throw failure.invalidRequest('tool_choice: may only be specified while providing tools.', {
      param: 'tool_choice',
      code: 'invalid_value',
    })
  }
  const definitions = tools.map((tool, index) => definitionFrom(tool, index, budget))
  const isSingle = choice?.type !== 'none' && choice?.disable_parallel_tool_use === true
  return planOf(definitions, {
    tool_choice: chatChoice(choice),
    ...(isSingle && { parallel_tool_calls: false }),
  })
}

function definitionFrom(tool: ToolField, index: number, budget: SchemaBudget) {
  const path = `tools[${index}]`
  const { name, description, input_schema: parameters, strict = null, type } = tool
  if (typeof type === 'string' && type !== 'custom') {
    const known = clientToolOf(type, `${path}.type`)
    return definitionOf({ name, ...known, strict: null }, path, budget)
  }
  if (!parameters) throw missingParameter(`${path}.input_schema`)
  const field = { name, parameters, strict, ...(description && { description }) }
  return definitionOf(field, `${path}.input_schema`, budget)
}

function chatChoice(choice: ToolChoiceField | null | undefined) {
  switch (choice?.type) {
    case 'any':
      return 'required'
    case 'none':
      return 'none'
    case 'tool':
      return { type: 'function', function: { name: choice.name } } as const
    default:
      return 'auto'
  }
}

function responseFormatOf(
  { output_config: config, output_format: older }: MessagesBody,
  budget: SchemaBudget,
): ResponseFormat {
  const format = config?.format ?? older
  if (!format) return { type: 'text' }
  if (config?.format && older) {
    throw invalidValue('output_format', "it cannot be given together with 'output_config.format'.")
  }
  const path = `${older ? 'output_format' : 'output_config.format'}.schema`
  return { type: 'jsonSchema', schema: budget.chargeLenient(format.schema, path), path }
}
