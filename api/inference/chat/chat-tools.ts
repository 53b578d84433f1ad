import type { Static } from 'typebox'

import {
  invalidValue,
  optionalBoolean,
  optionalObject,
  optionalString,
} from '#api/inference/field-schemas.ts'
import type { SchemaBudget } from '#api/inference/input-limits.ts'
import { checkStrictSchema } from '#api/inference/strict-schema.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import type { ToolChoice, ToolDefinition } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable } from '#shared/schemas.ts'

import { customDefinition, GRAMMAR_FIELDS } from './custom-tools.ts'

/** The most functions that one request may offer. */
export const TOOLS_MAX = 128
/** The permitted names of functions in chats. */
export const FUNCTION_NAME = Type.String({ pattern: '^[a-zA-Z0-9_-]{1,64}$' })
/** The same in responses and messages. */
export const LONG_FUNCTION_NAME = Type.String({ pattern: '^[a-zA-Z0-9_-]{1,128}$' })

/** Cache marks of clients of other dialects. Shared prefixes of prompts are found without them. */
export const CACHE_CONTROL = optionalObject()

const CLOSED = { additionalProperties: false }

const FUNCTION = Type.Object(
  {
    name: FUNCTION_NAME,
    description: optionalString(),
    parameters: optionalObject({ description: 'A JSON Schema.' }),
    strict: optionalBoolean({
      description: 'Calls must match the schema; a schema that cannot be enforced is refused.',
    }),
  },
  CLOSED,
)
type FunctionField = Static<typeof FUNCTION>

const NAMED_FUNCTION = Type.Object({ name: Type.String() }, CLOSED)

const NAMED_TOOLS = { function: { function: NAMED_FUNCTION }, custom: { custom: NAMED_FUNCTION } }
const NAMED_TOOL = variantSchema(NAMED_TOOLS)

const TOOL_CHOICE = variantSchema({
  ...NAMED_TOOLS,
  allowed_tools: {
    allowed_tools: Type.Object(
      {
        mode: choice(['auto', 'required']),
        tools: Type.Array(NAMED_TOOL, { maxItems: TOOLS_MAX }),
      },
      CLOSED,
    ),
  },
})

const CUSTOM = Type.Object(
  {
    name: FUNCTION_NAME,
    description: optionalString(),
    format: Type.Optional(
      nullable(
        variantSchema(
          { text: {}, grammar: { grammar: Type.Object(GRAMMAR_FIELDS, CLOSED) } },
          { description: 'The format of the input: any text, or text that follows a grammar.' },
        ),
      ),
    ),
  },
  CLOSED,
)

const TOOL = variantSchema({
  function: { function: FUNCTION, cache_control: CACHE_CONTROL },
  custom: { custom: CUSTOM, cache_control: CACHE_CONTROL },
})

/** The fields of chat completions about functions. */
export const TOOL_FIELDS = {
  tools: Type.Optional(
    nullable(
      Type.Array(TOOL, {
        maxItems: TOOLS_MAX,
        description: 'Functions and custom tools that the model may call.',
      }),
    ),
  ),
  tool_choice: Type.Optional(
    Type.Union([nullable(choice(['none', 'auto', 'required', 'any'])), TOOL_CHOICE], {
      description:
        "Controls tool calls: none, auto, required (in Mistral's API: any), or the name of one tool.",
    }),
  ),
  parallel_tool_calls: optionalBoolean({
    description: 'If false, the model makes one call at most.',
  }),
  functions: Type.Optional(
    nullable(
      Type.Array(FUNCTION, {
        maxItems: TOOLS_MAX,
        description: 'Deprecated: use `tools`.',
      }),
    ),
  ),
  function_call: Type.Optional(
    Type.Union([nullable(choice(['none', 'auto'])), NAMED_FUNCTION], {
      description: 'Deprecated: use `tool_choice`.',
    }),
  ),
}

/** The functions of a chat, and how its calls are presented. */
export interface ToolPlan {
  readonly tools: readonly ToolDefinition[]
  readonly choice: ToolChoice
  /** Calls beyond this number are dropped. */
  readonly callsMax: number
  /** Calls are presented as the deprecated `function_call`. */
  readonly isLegacy: boolean
  /** The custom tools, whose calls have an input instead of arguments; absent without any. */
  readonly customNames?: ReadonlySet<string>
  /** The names that clients use for tools of namespaces; absent without any. */
  readonly origins?: ReadonlyMap<string, { readonly namespace: string; readonly name: string }>
}

const TOOL_BODY = Type.Object(TOOL_FIELDS)
type ToolBody = Static<typeof TOOL_BODY>

/** The plan of the fields about functions; undefined when there are none to call. */
export function toolPlan(body: ToolBody, budget: SchemaBudget): ToolPlan | undefined {
  const tools = body.tools ?? []
  const functions = body.functions ?? []
  if (tools.length > 0 && functions.length > 0) {
    throw invalidValue('functions', "'functions' and 'tools' cannot be given together.")
  }
  if (functions.length > 0) return legacyPlan(functions, body.function_call, budget)
  if (tools.length === 0) {
    for (const field of ['tool_choice', 'function_call'] as const) {
      // Frameworks send the default even without tools; only a demanded call cannot be satisfied.
      if ([null, undefined, 'none', 'auto'].includes(body[field] as null)) continue
      const needed = field === 'function_call' ? 'functions' : 'tools'
      throw invalidValue(field, `'${field}' is only allowed when '${needed}' are specified.`)
    }
    return undefined
  }
  const definitions = tools.map((tool, index) => chatDefinition(tool, `tools[${index}]`, budget))
  return planOf(definitions, body, customNamesOf(definitions, tools))
}

function chatDefinition(
  tool: Static<typeof TOOL>,
  path: string,
  budget: SchemaBudget,
): ToolDefinition {
  if (tool.type === 'function')
    return definitionOf(tool.function, `${path}.function.parameters`, budget)
  const { format, ...custom } = tool.custom
  const grammar = format?.type === 'grammar' ? format.grammar : undefined
  return customDefinition({ ...custom, grammar }, `${path}.custom.format.grammar`, budget)
}

/** The names of the custom tools. Throws where a function has the name of one. */
export function customNamesOf(
  definitions: readonly ToolDefinition[],
  tools: readonly { readonly type: 'function' | 'custom' }[],
): ReadonlySet<string> {
  const namesOf = (type: string) =>
    new Set(definitions.filter((_, index) => tools[index]?.type === type).map(({ name }) => name))
  const customNames = namesOf('custom')
  for (const name of namesOf('function')) {
    if (!customNames.has(name)) continue
    throw invalidValue('tools', `'${name}' is the name of a function and of a custom tool.`)
  }
  return customNames
}

/** The plan for the functions and custom tools in `tools`. */
export function planOf(
  definitions: readonly ToolDefinition[],
  body: Pick<ToolBody, 'tool_choice' | 'parallel_tool_calls'>,
  customNames: ReadonlySet<string> = new Set(),
): ToolPlan {
  const { choice, allowed } = choiceOf(body.tool_choice, definitions, customNames)
  const callsMax = body.parallel_tool_calls === false ? 1 : TOOLS_MAX
  const plan = { tools: allowed, choice, callsMax, isLegacy: false }
  return customNames.size === 0 ? plan : { ...plan, customNames }
}

function legacyPlan(
  functions: readonly FunctionField[],
  call: ToolBody['function_call'],
  budget: SchemaBudget,
): ToolPlan {
  const tools = functions.map((entry, index) =>
    definitionOf(entry, `functions[${index}].parameters`, budget),
  )
  if (typeof call === 'object' && call !== null) {
    checkName(call.name, tools, { param: 'function_call', noun: 'function' })
  }
  return { tools, choice: call ?? 'auto', callsMax: 1, isLegacy: true }
}

/**
 * A function definition in the form of the workers. `schemaPath` is the place of its parameters in
 * the request. Throws when they are not an object schema, exceed the budget, or break the rules of
 * `strict`.
 */
export function definitionOf(
  field: FunctionField,
  schemaPath: string,
  budget: SchemaBudget,
): ToolDefinition {
  const { name, description, strict } = field
  const parameters =
    field.parameters && checkedSchema(field.parameters, strict, { param: schemaPath, budget })
  checkIsObject(parameters ?? {}, name, schemaPath)
  return {
    name,
    ...(typeof description === 'string' && { description }),
    schemaPath,
    ...(typeof parameters === 'object' && parameters !== null && { parameters }),
    ...(strict === true && { isStrict: true }),
  }
}

/**
 * A schema within the budget. A strict one is unchanged; any other loses the keywords that cannot
 * be enforced. Throws when a strict one breaks the rules of `strict`.
 */
export function checkedSchema(
  schema: object,
  strict: boolean | null | undefined,
  { param, budget }: { readonly param: string; readonly budget: SchemaBudget },
): object {
  if (strict !== true) return budget.chargeLenient(schema, param)
  budget.charge(schema, param)
  checkStrictSchema(schema, param)
  return schema
}

/**
 * Arguments are an object: a schema of another type would produce calls that clients cannot read.
 */
function checkIsObject({ type = 'object' }: { type?: unknown }, name: string, param: string): void {
  if ([type].flat().includes('object')) return
  const found = JSON.stringify(type).slice(0, 100)
  throw failure.invalidRequest(
    `Invalid schema for function '${name}': schema must be a JSON Schema of 'type: "object"', got 'type: ${found}'.`,
    { param, code: 'invalid_function_parameters' },
  )
}

function choiceOf(
  field: ToolBody['tool_choice'],
  tools: readonly ToolDefinition[],
  customNames: ReadonlySet<string>,
): { choice: ToolChoice; allowed: readonly ToolDefinition[] } {
  if (field === null || field === undefined) return { choice: 'auto', allowed: tools }
  if (typeof field === 'string')
    return { choice: field === 'any' ? 'required' : field, allowed: tools }
  const nameOf = (named: Static<typeof NAMED_TOOL>): string => {
    const isCustom = named.type === 'custom'
    const { name } = isCustom ? named.custom : named.function
    const candidates = tools.filter((tool) => customNames.has(tool.name) === isCustom)
    checkName(name, candidates, {
      param: 'tool_choice',
      noun: isCustom ? 'custom tool' : 'function',
    })
    return name
  }
  if (field.type !== 'allowed_tools') return { choice: { name: nameOf(field) }, allowed: tools }
  const names = field.allowed_tools.tools.map(nameOf)
  return {
    choice: field.allowed_tools.mode,
    allowed: tools.filter(({ name }) => names.includes(name)),
  }
}

function checkName(
  name: string,
  tools: readonly ToolDefinition[],
  { param, noun }: { readonly param: string; readonly noun: string },
): void {
  if (tools.some((tool) => tool.name === name)) return
  const where = param === 'function_call' ? 'functions' : 'tools'
  throw invalidValue(param, `The ${noun} '${name.slice(0, 64)}' is not among the '${where}'.`)
}
