import type { GenerateInput, ToolChoice, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

import type { Grammar } from '../sampling/constraint/grammar.ts'
import { SchemaCompiler } from '../sampling/constraint/json-schema.ts'
import type { ConstraintFactory } from '../sampling/constraint/token-constraint.ts'
import { TOOL_CALL_CLOSING, TOOL_CALL_OPENING } from '../text/tool-messages.ts'
import type { CompletionModel } from './completion-model.ts'

const SCHEMA_PATH = 'response_format.json_schema.schema'

/** What the answer must look like, or undefined when anything goes; a forced call comes first. */
export function findConstraint(
  model: CompletionModel,
  input: GenerateInput,
): ConstraintFactory | undefined {
  const forced = input.prompts.map(forcedTools).find((tools) => tools !== undefined)
  if (forced !== undefined) {
    const key = `tools ${JSON.stringify(forced)}`
    return model.constraints.get(key, () => toolCallGrammar(forced))
  }
  const { responseFormat } = input
  switch (responseFormat.type) {
    case 'text':
      return undefined
    case 'jsonObject':
      return model.constraints.get('json', () => new SchemaCompiler('response_format').json.object)
    case 'jsonSchema': {
      const { schema } = responseFormat
      return model.constraints.get(`schema ${JSON.stringify(schema)}`, () =>
        new SchemaCompiler('response_format').compileRoot(schema, SCHEMA_PATH),
      )
    }
  }
}

interface ForcedTool {
  readonly tool: ToolDefinition
  /** The tool's place in the request, for messages. */
  readonly index: number
}

/** The tools of which one must be called, or undefined when the model may choose to call none. */
function forcedTools(prompt: GenerateInput['prompts'][number]): readonly ForcedTool[] | undefined {
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

/** One call in Hermes tags, its arguments following the tool's own schema. */
function toolCallGrammar(tools: readonly ForcedTool[]): Grammar {
  const compiler = new SchemaCompiler('tools')
  const { json } = compiler
  const { builder } = json
  const calls = tools.map(({ tool, index }) =>
    builder.sequence(
      builder.literal(`{"name": ${JSON.stringify(tool.name)}, "arguments": `),
      compiler.compileRoot(
        { type: 'object', ...tool.parameters },
        `tools.${index}.function.parameters`,
      ),
      builder.literal('}'),
    ),
  )
  return builder.sequence(
    builder.literal(TOOL_CALL_OPENING),
    builder.choice(...calls),
    builder.literal(TOOL_CALL_CLOSING),
  )
}
