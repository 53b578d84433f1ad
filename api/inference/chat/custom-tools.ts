import type { Static } from 'typebox'

import { invalidValue } from '#api/inference/field-schemas.ts'
import { SCHEMA_LIMITS, type SchemaBudget } from '#api/inference/input-limits.ts'
import type { ToolDefinition } from '#shared/contracts/completion.ts'
import { Type } from '#shared/schema-types.ts'
import { choice } from '#shared/schemas.ts'

/** The fields of a grammar that the input of a custom tool follows. */
export const GRAMMAR_FIELDS = {
  syntax: choice(['lark', 'regex']),
  definition: Type.String({
    minLength: 1,
    description: 'A grammar or a regular expression that the whole input must match.',
  }),
}

const GRAMMAR = Type.Object(GRAMMAR_FIELDS)

/** A custom tool as both dialects define it. */
interface CustomTool {
  readonly name: string
  readonly description?: string | null | undefined
  readonly grammar?: Static<typeof GRAMMAR> | undefined
}

/**
 * A custom tool in the form of chat templates and workers: a function with one string, `input`.
 * `path` is the place of the grammar in the request. Throws when the grammar cannot be enforced.
 */
export function customDefinition(
  { name, description, grammar }: CustomTool,
  path: string,
  budget: SchemaBudget,
): ToolDefinition {
  const schemaPath = `${path}.definition`
  const input = { type: 'string', ...(grammar && constraintOf(grammar, schemaPath)) }
  const parameters = {
    type: 'object',
    properties: { input },
    required: ['input'],
    additionalProperties: false,
  }
  budget.charge(parameters, schemaPath)
  return {
    name,
    parameters,
    ...(typeof description === 'string' && { description }),
    ...(grammar !== undefined && { isStrict: true, schemaPath }),
  }
}

/** The arguments of a call of a custom tool, as chat templates read them. */
export function customArguments(input: string): string {
  return JSON.stringify({ input })
}

const ANCHORED = ['^(?:', ')$'] as const

/**
 * The keyword that limits a string: a pattern of texts that match an expression as a whole, with or
 * without its own anchors, or a grammar that workers enforce.
 */
function constraintOf({ syntax, definition }: Static<typeof GRAMMAR>, path: string): object {
  if (syntax === 'lark') return { 'x-lark': definition }
  const charactersMax = SCHEMA_LIMITS.patternCharacters - ANCHORED.join('').length
  if (definition.length > charactersMax) {
    throw invalidValue(path, `it may have at most ${charactersMax} characters.`)
  }
  const inner = definition.replace(/^\^/, '').replace(/(?<!\\)((?:\\\\)*)\$$/, '$1')
  return { pattern: ANCHORED.join(inner) }
}
