import type { GenerateInput, ToolDefinition } from '#shared/contracts/completion.ts'
import { ServiceError } from '#shared/errors.ts'

import { BudgetExceededError, type WorkBudget } from '../preparation/work-budget.ts'
import type { Grammar } from '../sampling/constraint/grammar.ts'
import { GrammarBuilder } from '../sampling/constraint/grammar.ts'
import { JsonGrammar } from '../sampling/constraint/json-grammar.ts'
import { SchemaCompiler } from '../sampling/constraint/json-schema.ts'
import { TOOL_CALL_CLOSING, TOOL_CALL_OPENING } from '../text/tool-messages.ts'

const SCHEMA_PATH = 'response_format.json_schema.schema'
/** As the API describes a function without parameters. */
const NO_PARAMETERS = { type: 'object', properties: {}, additionalProperties: false }

type AskedFormat = Exclude<GenerateInput['responseFormat'], { readonly type: 'text' }>

/** A tool and its place in the request, for messages. */
export interface OfferedTool {
  readonly tool: ToolDefinition
  readonly index: number
}

/** What a grammar is made of: one forced call, calls in free text, or a form beside calls. */
export type ConstraintPlan =
  | { readonly kind: 'forced' | 'offered'; readonly tools: readonly OfferedTool[] }
  | { readonly kind: 'form'; readonly format: AskedFormat; readonly tools: readonly OfferedTool[] }

/** Compiles the grammar of a plan. Throws `invalidRequest` for what cannot be enforced. */
export function compileConstraint(plan: ConstraintPlan, budget: WorkBudget): Grammar {
  const json = new JsonGrammar(new GrammarBuilder(budget))
  if (plan.kind === 'form') return formOrCalls(json, plan.format, plan.tools)
  const compiler = new SchemaCompiler('tools', json)
  const follows = plan.kind === 'forced' ? 'exactly' : 'where possible'
  const compiled = plan.tools.map((tool) => compileTool(compiler, tool, follows))
  return plan.kind === 'forced' ? wholeCall(compiler, compiled) : looseCall(compiler, compiled)
}

/** The form that was asked for, or one call or more. */
function formOrCalls(
  base: JsonGrammar,
  format: AskedFormat,
  offered: readonly OfferedTool[],
): Grammar {
  const compiler = new SchemaCompiler('response_format', base)
  const { json } = compiler
  const form =
    format.type === 'jsonObject' ? json.object : compiler.compileRoot(format.schema, SCHEMA_PATH)
  if (offered.length === 0) return form
  const { builder } = json
  const toolCompiler = new SchemaCompiler('tools', json)
  const compiled = offered.map((tool) => compileTool(toolCompiler, tool, 'where possible'))
  const call = wholeCall(toolCompiler, compiled)
  const more = builder.repeat(builder.sequence(builder.optional(builder.literal('\n')), call), 0)
  return builder.choice(form, builder.sequence(call, more))
}

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
  return builder.choiceOf(
    tools.map((tool) =>
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
      if (error instanceof ServiceError || isOverBudgetLater(error)) return json.object
      throw error
    }
  }
  return { name, parameters: json.builder.later(compileLeniently) }
}

/** While decoding there is no thread to fall back to. */
function isOverBudgetLater(error: unknown): boolean {
  return error instanceof BudgetExceededError
}

/** Whether the calls of a tool must follow its schema. */
export function isStrict({ tool }: OfferedTool): boolean {
  return tool.isStrict === true
}
