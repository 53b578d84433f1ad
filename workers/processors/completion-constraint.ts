import type { GenerateInput, ToolChoice, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure, ServiceError } from '#shared/errors.ts'

import type { Grammar } from '../sampling/constraint/grammar.ts'
import { SchemaCompiler } from '../sampling/constraint/json-schema.ts'
import type { ConstraintSource } from '../sampling/constraint/token-constraint.ts'
import { TriggeredConstraint } from '../sampling/constraint/triggered-constraint.ts'
import { TOOL_CALL_CLOSING, TOOL_CALL_OPENING } from '../text/tool-messages.ts'
import type { CompletionModel } from './completion-model.ts'

const SCHEMA_PATH = 'response_format.json_schema.schema'
/** As the API describes a function without parameters. */
const NO_PARAMETERS = { type: 'object', properties: {}, additionalProperties: false }

/**
 * What the answer must look like, or undefined when anything goes: a forced call; or the required
 * form, beside which functions that are offered may still be called; or free text in which each call
 * that the model begins is one of an offered function.
 */
export function findConstraint(
  model: CompletionModel,
  input: GenerateInput,
): ConstraintSource | undefined {
  const forced = input.prompts.map(forcedTools).find((tools) => tools !== undefined)
  if (forced !== undefined) {
    return model.constraints.get(`tools ${JSON.stringify(forced)}`, () => {
      const compiler = new SchemaCompiler('tools')
      return wholeCall(compiler, forced, 'exactly')
    })
  }
  const offered = input.prompts.flatMap(offeredTools)
  const { responseFormat } = input
  if (responseFormat.type === 'text') {
    return offered.length > 0 ? callsInFreeText(model, offered) : undefined
  }
  const key = `form ${JSON.stringify([responseFormat, offered])}`
  return model.constraints.get(key, () => formOrCalls(responseFormat, offered))
}

interface OfferedTool {
  readonly tool: ToolDefinition
  /** The tool's place in the request, for messages. */
  readonly index: number
}

/** The tools of which one must be called, or undefined when the model may choose to call none. */
function forcedTools(prompt: GenerateInput['prompts'][number]): readonly OfferedTool[] | undefined {
  if (prompt.form !== 'chat') return undefined
  const choice: ToolChoice = prompt.toolChoice ?? 'auto'
  if (choice === 'none' || choice === 'auto') return undefined
  const offered = (prompt.tools ?? []).map((tool, index) => ({ tool, index }))
  const forced =
    choice === 'required' ? offered : offered.filter(({ tool }) => tool.name === choice.name)
  if (forced.length > 0) return forced
  throw failure.invalidRequest(
    choice === 'required'
      ? "Invalid 'tool_choice': 'required' needs at least one tool in 'tools'."
      : `Invalid 'tool_choice': there is no tool named '${choice.name}' in 'tools'.`,
    { param: 'tool_choice' },
  )
}

/** The tools that the model may call or not. */
function offeredTools(prompt: GenerateInput['prompts'][number]): readonly OfferedTool[] {
  if (prompt.form !== 'chat' || (prompt.toolChoice ?? 'auto') !== 'auto') return []
  return (prompt.tools ?? []).map((tool, index) => ({ tool, index }))
}

function callsInFreeText(
  model: CompletionModel,
  offered: readonly OfferedTool[],
): ConstraintSource {
  const inner = () =>
    model.constraints.get(`calls ${JSON.stringify(offered)}`, () => {
      const compiler = new SchemaCompiler('tools')
      const { builder } = compiler.json
      const [opens, closes] = looseTags(compiler)
      return builder.sequence(opens, oneCall(compiler, offered, 'where possible'), closes)
    })
  const isLenient = !offered.some(({ tool }) => tool.isStrict === true)
  // What cannot be promised is refused before anything runs.
  if (!isLenient) inner()
  const { pieces } = model.text.tokenizer
  return new TriggeredConstraint({ opening: OPENING_TAG, inner, pieces, isLenient })
}

/** The form that was asked for, or one call or more. */
function formOrCalls(
  format: Exclude<GenerateInput['responseFormat'], { readonly type: 'text' }>,
  offered: readonly OfferedTool[],
): Grammar {
  const compiler = new SchemaCompiler('response_format')
  const { json } = compiler
  const form =
    format.type === 'jsonObject' ? json.object : compiler.compileRoot(format.schema, SCHEMA_PATH)
  if (offered.length === 0) return form
  const { builder } = json
  const call = wholeCall(new SchemaCompiler('tools', json), offered, 'where possible')
  const more = builder.repeat(builder.sequence(builder.optional(builder.literal('\n')), call), 0)
  return builder.choice(form, builder.sequence(call, more))
}

const OPENING_TAG = TOOL_CALL_OPENING.trimEnd()
const CLOSING_TAG = TOOL_CALL_CLOSING.trimStart()

/** What follows the opening tag, and the closing tag: the line breaks may be left out. */
function looseTags({ json: { builder } }: SchemaCompiler): [Grammar, Grammar] {
  const newline = builder.optional(builder.literal('\n'))
  return [newline, builder.sequence(newline, builder.literal(CLOSING_TAG))]
}

/** One call in Hermes tags. */
function wholeCall(
  compiler: SchemaCompiler,
  tools: readonly OfferedTool[],
  follows: 'exactly' | 'where possible',
): Grammar {
  const { builder } = compiler.json
  return builder.sequence(
    builder.literal(TOOL_CALL_OPENING),
    oneCall(compiler, tools, follows),
    builder.literal(TOOL_CALL_CLOSING),
  )
}

/**
 * A name and its arguments, which follow the tool's own schema. Where it is enough to follow what can
 * be enforced, the arguments of a tool with another schema are any object, unless it is strict.
 */
function oneCall(
  compiler: SchemaCompiler,
  tools: readonly OfferedTool[],
  follows: 'exactly' | 'where possible',
): Grammar {
  const { json } = compiler
  const { builder } = json
  const compile = ({ tool, index }: OfferedTool): Grammar => {
    const path = `tools.${index}.function.parameters`
    const { parameters } = tool
    try {
      return compiler.compileRoot(
        parameters === undefined ? NO_PARAMETERS : { type: 'object', ...parameters },
        path,
      )
    } catch (error) {
      if (follows === 'exactly' || tool.isStrict === true) throw error
      if (error instanceof ServiceError) return json.object
      throw error
    }
  }
  return builder.choice(
    ...tools.map((offered) =>
      builder.sequence(
        builder.literal(`{"name": ${JSON.stringify(offered.tool.name)}, "arguments": `),
        compile(offered),
        builder.literal('}'),
      ),
    ),
  )
}
