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
 * that the model begins is one of an offered function. `share` is asked for a turn now and then.
 * Grammars are kept for each scope by itself: how long one takes must not tell who else uses it.
 */
export async function findConstraint(
  model: CompletionModel,
  input: GenerateInput,
  share: ShareTurns,
  cacheScope: string,
): Promise<ConstraintSource | undefined> {
  const forced = input.prompts.map(forcedTools).find((tools) => tools !== undefined)
  if (forced !== undefined) {
    return model.constraints.prepare(`${cacheScope} tools ${JSON.stringify(forced)}`, async () => {
      const compiler = new SchemaCompiler('tools')
      const compiled = await compileTools(compiler, forced, 'exactly', share)
      return wholeCall(compiler, compiled)
    })
  }
  const offered = input.prompts.flatMap(offeredTools)
  const { responseFormat } = input
  if (responseFormat.type === 'text') {
    return offered.length > 0 ? callsInFreeText(model, offered, share, cacheScope) : undefined
  }
  const key = `${cacheScope} form ${JSON.stringify([responseFormat, offered])}`
  return model.constraints.prepare(key, () => formOrCalls(responseFormat, offered, share))
}

type ShareTurns = () => Promise<void>

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

async function callsInFreeText(
  model: CompletionModel,
  offered: readonly OfferedTool[],
  share: ShareTurns,
  cacheScope: string,
): Promise<ConstraintSource> {
  const key = `${cacheScope} calls ${JSON.stringify(offered)}`
  const { pieces } = model.text.tokenizer
  const options = { opening: OPENING_TAG, pieces }
  if (!offered.some(isStrict)) {
    const inner = () =>
      model.constraints.get(key, () => {
        const compiler = new SchemaCompiler('tools')
        const compiled = offered.map((tool) => compileTool(compiler, tool, 'where possible'))
        return looseCall(compiler, compiled)
      })
    return new TriggeredConstraint({ ...options, inner, isLenient: true })
  }
  // What cannot be promised is refused before anything runs.
  const factory = await model.constraints.prepare(key, async () => {
    const compiler = new SchemaCompiler('tools')
    return looseCall(compiler, await compileTools(compiler, offered, 'where possible', share))
  })
  return new TriggeredConstraint({ ...options, inner: () => factory, isLenient: false })
}

/** The form that was asked for, or one call or more. */
async function formOrCalls(
  format: Exclude<GenerateInput['responseFormat'], { readonly type: 'text' }>,
  offered: readonly OfferedTool[],
  share: ShareTurns,
): Promise<Grammar> {
  const compiler = new SchemaCompiler('response_format')
  const { json } = compiler
  const form =
    format.type === 'jsonObject' ? json.object : compiler.compileRoot(format.schema, SCHEMA_PATH)
  await share()
  if (offered.length === 0) return form
  const { builder } = json
  const toolCompiler = new SchemaCompiler('tools', json)
  const compiled = await compileTools(toolCompiler, offered, 'where possible', share)
  const call = wholeCall(toolCompiler, compiled)
  const more = builder.repeat(builder.sequence(builder.optional(builder.literal('\n')), call), 0)
  return builder.choice(form, builder.sequence(call, more))
}

const OPENING_TAG = TOOL_CALL_OPENING.trimEnd()
const CLOSING_TAG = TOOL_CALL_CLOSING.trimStart()

/** What follows the opening tag, to the end of the closing tag: the line breaks may be left out. */
function looseCall(compiler: SchemaCompiler, tools: readonly CompiledTool[]): Grammar {
  const { builder } = compiler.json
  const newline = builder.optional(builder.literal('\n'))
  const call = oneCall(compiler, tools)
  return builder.sequence(newline, call, newline, builder.literal(CLOSING_TAG))
}

/** One call in Hermes tags. */
function wholeCall(compiler: SchemaCompiler, tools: readonly CompiledTool[]): Grammar {
  const { builder } = compiler.json
  return builder.sequence(
    builder.literal(TOOL_CALL_OPENING),
    oneCall(compiler, tools),
    builder.literal(TOOL_CALL_CLOSING),
  )
}

/** A name and its arguments, which follow the tool's own schema. */
function oneCall({ json: { builder } }: SchemaCompiler, tools: readonly CompiledTool[]): Grammar {
  return builder.choice(
    ...tools.map((tool) =>
      builder.sequence(
        builder.literal(`{"name": ${JSON.stringify(tool.name)}, "arguments": `),
        tool.parameters,
        builder.literal('}'),
      ),
    ),
  )
}

interface CompiledTool {
  readonly name: string
  readonly parameters: Grammar
}

async function compileTools(
  compiler: SchemaCompiler,
  tools: readonly OfferedTool[],
  follows: 'exactly' | 'where possible',
  share: ShareTurns,
): Promise<readonly CompiledTool[]> {
  const compiled: CompiledTool[] = []
  for (const tool of tools) {
    compiled.push(compileTool(compiler, tool, follows))
    await share()
  }
  return compiled
}

/**
 * Where it is enough to follow what can be enforced, the arguments of a tool with another schema are
 * any object, unless it is strict; and its schema is looked at when the tool is called, if ever.
 */
function compileTool(
  compiler: SchemaCompiler,
  offered: OfferedTool,
  follows: 'exactly' | 'where possible',
): CompiledTool {
  const { tool, index } = offered
  const { name, parameters } = tool
  const compile = (): Grammar =>
    compiler.compileRoot(
      parameters === undefined ? NO_PARAMETERS : { type: 'object', ...parameters },
      `tools.${index}.function.parameters`,
    )
  if (follows === 'exactly' || isStrict(offered)) return { name, parameters: compile() }
  const { json } = compiler
  const compileLeniently = (): Grammar => {
    try {
      return compile()
    } catch (error) {
      if (error instanceof ServiceError) return json.object
      throw error
    }
  }
  return { name, parameters: json.builder.later(compileLeniently) }
}

function isStrict({ tool }: OfferedTool): boolean {
  return tool.isStrict === true
}
