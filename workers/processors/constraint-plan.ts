import { type CallFormatName, callFormat } from '#shared/contracts/call-formats.ts'
import type { CallFormat } from '#shared/contracts/call-syntax.ts'
import type { GenerateInput, ToolDefinition } from '#shared/contracts/completion.ts'
import type { TagFormat } from '#shared/contracts/structural-tag.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import { BudgetExceededError, type WorkBudget } from '#workers/preparation/work-budget.ts'
import { surveyGrammar } from '#workers/sampling/constraint/dead-ends.ts'
import { GbnfError, parseGbnf } from '#workers/sampling/constraint/gbnf.ts'
import type { Grammar } from '#workers/sampling/constraint/grammar.ts'
import { GrammarBuilder } from '#workers/sampling/constraint/grammar.ts'
import { JsonGrammar } from '#workers/sampling/constraint/json-grammar.ts'
import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'
import { compileLark, isLark } from '#workers/sampling/constraint/lark.ts'
import { LarkError } from '#workers/sampling/constraint/lark-tokens.ts'
import {
  compileWholePattern,
  plainAlphabet,
  UnsupportedPatternError,
} from '#workers/sampling/constraint/string-pattern.ts'

import { type CompiledTool, callBehindTrigger, pairedArguments, wholeCall } from './call-grammar.ts'
import { tagGrammar } from './tag-grammar.ts'

/** The field of chat completions with the schema of an answer. */
const SCHEMA_PATH = 'response_format.json_schema.schema'
/** As in the API reference for a function without parameters. */
const NO_PARAMETERS = { type: 'object', properties: {}, additionalProperties: false }

/** The constraint on the text of an answer. */
export type AskedFormat = Exclude<GenerateInput['responseFormat'], { readonly type: 'text' }>

/** The request field of a format, for messages. */
export function formPathOf(format: AskedFormat): string {
  if (format.type === 'jsonSchema') return format.path ?? SCHEMA_PATH
  return 'path' in format ? format.path : 'response_format'
}

/** The parts of a grammar: one forced call, calls in free text, or a format beside calls. */
export type ConstraintPlan = (
  | { readonly kind: 'forced' | 'offered' }
  | { readonly kind: 'form'; readonly format: AskedFormat }
) & {
  readonly tools: readonly ToolDefinition[]
  /** The call format of the model. */
  readonly calls: CallFormatName
}

/** Compiles the grammar of a plan. Throws `invalidRequest` for parts that cannot be enforced. */
export function compileConstraint(plan: ConstraintPlan, budget: WorkBudget): Grammar {
  const json = new JsonGrammar(new GrammarBuilder(budget))
  if (plan.kind === 'form') return formOrCalls(json, plan.format, plan)
  const compiler = new SchemaCompiler('tools', json)
  const follows = plan.kind === 'forced' ? 'exactly' : 'where possible'
  const format = callFormat(plan.calls)
  const compiled = plan.tools.map((tool) => compileTool(compiler, tool, { format, follows }))
  const { builder } = json
  return plan.kind === 'forced'
    ? wholeCall(builder, format, compiled)
    : callBehindTrigger(builder, format, compiled)
}

/** The requested format, or one or more calls. */
function formOrCalls(
  base: JsonGrammar,
  format: AskedFormat,
  { tools, calls }: ConstraintPlan,
): Grammar {
  const compiler = new SchemaCompiler('response_format', base)
  const { json } = compiler
  const form = compileFormat(compiler, format)
  if (tools.length === 0) return form
  const { builder } = json
  const toolCompiler = new SchemaCompiler('tools', json)
  const options = { format: callFormat(calls), follows: 'where possible' } as const
  const compiled = tools.map((tool) => compileTool(toolCompiler, tool, options))
  return builder.choice(form, wholeCall(builder, options.format, compiled, true))
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
      return textGrammar(format.path, () =>
        compileWholePattern(plainAlphabet(builder), format.pattern),
      )
    case 'grammar':
      return textGrammar(format.path, () => compileNotation(builder, format.grammar))
    case 'structuralTag':
      return textGrammar(format.path, () => compileTags(compiler, format.format))
  }
}

function compileTags(compiler: SchemaCompiler, format: TagFormat): Grammar {
  const { builder } = compiler.json
  return tagGrammar(format, {
    builder,
    compileLeaf: (leaf) => {
      if (leaf.kind === 'json') return compileField(compiler, leaf.schema, leaf.path)
      const { kind, path } = leaf
      return textGrammar(path, () =>
        kind === 'regex'
          ? compileWholePattern(plainAlphabet(builder), leaf.pattern)
          : compileNotation(builder, leaf.grammar),
      )
    },
  })
}

/** Compiles a grammar in GBNF or in Lark, by the rule of vLLM. */
function compileNotation(builder: GrammarBuilder, text: string): Grammar {
  return isLark(text) ? compileLark(plainAlphabet(builder), text) : parseGbnf(builder, text)
}

/** Errors of parsers, whose messages state the place and the reason. */
const SYNTAX_ERRORS = [UnsupportedPatternError, GbnfError, LarkError] as const

/** Compiles a text format other than JSON. Throws `invalidRequest` naming its field. */
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
    const isSyntax = SYNTAX_ERRORS.some((kind) => error instanceof kind)
    if (isSyntax) throw refuse((error as Error).message)
    const isOver = error instanceof BudgetExceededError && error.budget.isWhole
    throw isOver ? refuse('it takes too long to prepare') : error
  }
}

/**
 * The arguments of a tool whose schema cannot be enforced are any object, unless it is strict. If
 * the tool is optional, its schema is compiled when the model calls it.
 */
function compileTool(
  compiler: SchemaCompiler,
  tool: ToolDefinition,
  {
    format,
    follows,
  }: { readonly format: CallFormat; readonly follows: 'exactly' | 'where possible' },
): CompiledTool {
  const { name, parameters, schemaPath = 'tools' } = tool
  const compile = (): Grammar => {
    const schema = parameters === undefined ? NO_PARAMETERS : { type: 'object', ...parameters }
    const { syntax, wrappers = [] } = format
    if (syntax === 'json') return compileField(compiler, schema, schemaPath)
    const compileJson = (value: unknown): Grammar => compileField(compiler, value, schemaPath)
    const quote = wrappers[0] ?? ''
    const context = { compiler, format, quote, compileJson }
    return refusedAt(schemaPath, () => pairedArguments(schema, context))
  }
  if (isStrict(tool)) return { name, parameters: compile() }
  const { json } = compiler
  const anyArguments = (): Grammar => anyArgumentsOf(json, format)
  const compileLeniently = (isLater: boolean): Grammar => {
    try {
      return compile()
    } catch (error) {
      if (error instanceof ServiceError || (isLater && isOverBudgetLater(error)))
        return anyArguments()
      throw error
    }
  }
  if (follows === 'exactly') return { name, parameters: compileLeniently(false) }
  return { name, parameters: json.builder.later(() => compileLeniently(true)) }
}

/** Arguments whose schema is not enforced. */
function anyArgumentsOf(json: JsonGrammar, { syntax }: CallFormat): Grammar {
  if (syntax === 'json') return json.object
  const { builder } = json
  // Without the characters that could end a call.
  const ranges = [
    [0x09, 0x0a],
    [0x20, 0x27],
    [0x2a, 0x3b],
    [0x3d, 0x3d],
    [0x3f, 0x5a],
    [0x5e, 0x7a],
    [0x80, 0xff],
  ] as const
  return syntax === 'xml' ? builder.literal('') : builder.repeat(builder.byte(...ranges), 0)
}

/** Compiles the schema in a request field, which errors name. */
function compileField(compiler: SchemaCompiler, schema: unknown, param: string): Grammar {
  return refusedAt(param, () => compiler.compileRoot(schema, param))
}

function refusedAt(param: string, compile: () => Grammar): Grammar {
  try {
    return compile()
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'invalid_json_schema') throw error
    throw failure.invalidRequest(error.message, { param, code: error.code, cause: error })
  }
}

/** During decoding there is no thread as a fallback. */
function isOverBudgetLater(error: unknown): boolean {
  return error instanceof BudgetExceededError
}

/** Whether the calls of a tool must follow its schema. */
export function isStrict(tool: ToolDefinition): boolean {
  return tool.isStrict === true
}
