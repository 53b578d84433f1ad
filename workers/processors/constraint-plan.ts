import type { GenerateInput, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure, ServiceError } from '#shared/errors.ts'

import { BudgetExceededError, type WorkBudget } from '../preparation/work-budget.ts'
import { surveyGrammar } from '../sampling/constraint/dead-ends.ts'
import { GbnfError, parseGbnf } from '../sampling/constraint/gbnf.ts'
import type { Grammar } from '../sampling/constraint/grammar.ts'
import { GrammarBuilder } from '../sampling/constraint/grammar.ts'
import { JsonGrammar } from '../sampling/constraint/json-grammar.ts'
import { SchemaCompiler } from '../sampling/constraint/json-schema.ts'
import {
  compileWholePattern,
  UnsupportedPatternError,
} from '../sampling/constraint/string-pattern.ts'
import { TOOL_CALL_CLOSING, TOOL_CALL_OPENING } from '../text/tool-messages.ts'

/** Where chat completions have the schema of an answer, and those of tools. */
export const SCHEMA_PATH = 'response_format.json_schema.schema'
const TOOL_SCHEMA_PATH = 'tools[#].function.parameters'
/** As the API describes a function without parameters. */
const NO_PARAMETERS = { type: 'object', properties: {}, additionalProperties: false }

type AskedFormat = Exclude<GenerateInput['responseFormat'], { readonly type: 'text' }>

/** A tool and its place in the request, for messages. */
export interface OfferedTool {
  readonly tool: ToolDefinition
  readonly index: number
}

/** The request field that holds a form, for messages. */
export function formPathOf(format: AskedFormat): string {
  if (format.type === 'jsonSchema') return format.path ?? SCHEMA_PATH
  return 'path' in format ? format.path : 'response_format'
}

/** What a grammar is made of: one forced call, calls in free text, or a form beside calls. */
export type ConstraintPlan = (
  | { readonly kind: 'forced' | 'offered' }
  | { readonly kind: 'form'; readonly format: AskedFormat }
) & { readonly tools: readonly OfferedTool[]; readonly toolPath?: string | undefined }

/** Compiles the grammar of a plan. Throws `invalidRequest` for what cannot be enforced. */
export function compileConstraint(plan: ConstraintPlan, budget: WorkBudget): Grammar {
  const json = new JsonGrammar(new GrammarBuilder(budget))
  if (plan.kind === 'form') return formOrCalls(json, plan.format, plan)
  const compiler = new SchemaCompiler('tools', json)
  const follows = plan.kind === 'forced' ? 'exactly' : 'where possible'
  const compiled = plan.tools.map((tool) =>
    compileTool(compiler, { ...tool, path: plan.toolPath }, follows),
  )
  return plan.kind === 'forced' ? wholeCall(compiler, compiled) : looseCall(compiler, compiled)
}

/** The form that was asked for, or one call or more. */
function formOrCalls(
  base: JsonGrammar,
  format: AskedFormat,
  { tools: offered, toolPath }: ConstraintPlan,
): Grammar {
  const compiler = new SchemaCompiler('response_format', base)
  const { json } = compiler
  const form = compileFormat(compiler, format)
  if (offered.length === 0) return form
  const { builder } = json
  const toolCompiler = new SchemaCompiler('tools', json)
  const compiled = offered.map((tool) =>
    compileTool(toolCompiler, { ...tool, path: toolPath }, 'where possible'),
  )
  const call = wholeCall(toolCompiler, compiled)
  const more = builder.repeat(builder.sequence(builder.optional(builder.literal('\n')), call), 0)
  return builder.choice(form, builder.sequence(call, more))
}

function compileFormat(compiler: SchemaCompiler, format: AskedFormat): Grammar {
  const { json } = compiler
  const { builder } = json
  switch (format.type) {
    case 'jsonObject':
      return json.object
    case 'jsonSchema':
      return compileField(compiler, format.schema, format.path ?? SCHEMA_PATH)
    case 'choice':
      return builder.choiceOf(format.choices.map((choice) => builder.literal(choice)))
    case 'regex':
      return textGrammar(format.path, () => compileWholePattern(builder, format.pattern))
    case 'grammar':
      return textGrammar(format.path, () => parseGbnf(builder, format.grammar))
  }
}

/** Compiles a form of text that is no JSON. Throws `invalidRequest` naming its field. */
function textGrammar(param: string, compile: () => Grammar): Grammar {
  const refuse = (reason: string) =>
    failure.invalidRequest(`Invalid value for '${param}': ${reason}.`, {
      param,
      code: 'invalid_value',
    })
  try {
    const grammar = compile()
    if (surveyGrammar(grammar).deadEnds.has(grammar)) throw refuse('no text satisfies it')
    return grammar
  } catch (error) {
    if (error instanceof UnsupportedPatternError || error instanceof GbnfError) {
      throw refuse(error.message)
    }
    const isOver = error instanceof BudgetExceededError && error.budget.isWhole
    throw isOver ? refuse('it takes too long to prepare') : error
  }
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
 * The arguments of a tool whose schema cannot be enforced are any object, unless it is strict. Where
 * the tool may not be called at all, its schema is compiled when it is.
 */
function compileTool(
  compiler: SchemaCompiler,
  offered: OfferedTool & { readonly path: string | undefined },
  follows: 'exactly' | 'where possible',
): CompiledTool {
  const { tool, index, path = TOOL_SCHEMA_PATH } = offered
  const { name, parameters } = tool
  const compile = (): Grammar =>
    compileField(
      compiler,
      parameters === undefined ? NO_PARAMETERS : { type: 'object', ...parameters },
      path.replace('#', String(index)),
    )
  if (isStrict(offered)) return { name, parameters: compile() }
  const { json } = compiler
  const compileLeniently = (isLater: boolean): Grammar => {
    try {
      return compile()
    } catch (error) {
      if (error instanceof ServiceError || (isLater && isOverBudgetLater(error))) return json.object
      throw error
    }
  }
  if (follows === 'exactly') return { name, parameters: compileLeniently(false) }
  return { name, parameters: json.builder.later(() => compileLeniently(true)) }
}

/** Compiles the schema in a request field, which a refusal names. */
function compileField(compiler: SchemaCompiler, schema: unknown, param: string): Grammar {
  try {
    return compiler.compileRoot(schema, param)
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'invalid_json_schema') throw error
    throw failure.invalidRequest(error.message, { param, code: error.code, cause: error })
  }
}

/** While decoding there is no thread to fall back to. */
function isOverBudgetLater(error: unknown): boolean {
  return error instanceof BudgetExceededError
}

/** Whether the calls of a tool must follow its schema. */
export function isStrict({ tool }: OfferedTool): boolean {
  return tool.isStrict === true
}
