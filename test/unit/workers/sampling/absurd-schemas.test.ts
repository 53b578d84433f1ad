import { describe, expect, it } from 'vitest'

import { PREPARATION_STEPS_MAX, WorkBudget } from '#workers/preparation/work-budget.ts'
import { GrammarBuilder } from '#workers/sampling/constraint/grammar.ts'
import { JsonGrammar } from '#workers/sampling/constraint/json-grammar.ts'
import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

/** Compiles a schema and returns the steps that it took, with the refusal if there was one. */
function compile(schema: unknown): { readonly steps: number; readonly refusal?: string } {
  const budget = new WorkBudget()
  const json = new JsonGrammar(new GrammarBuilder(budget))
  try {
    new SchemaCompiler('response_format', json).compileRoot(schema, 'schema')
    return { steps: budget.used }
  } catch (error) {
    expect(error).toMatchObject({ status: 400, param: 'response_format' })
    return { steps: budget.used, refusal: (error as Error).message }
  }
}

const names = (count: number) => Array.from({ length: count }, (_, at) => `name_${at}`)
const properties = (count: number) =>
  Object.fromEntries(names(count).map((name) => [name, { type: 'string' }]))
const kind = (name: string) => ({
  type: 'object',
  properties: { kind: { const: name } },
  required: ['kind'],
})

describe('a large schema of ordinary shape', () => {
  it.each<[string, unknown, number]>([
    ['an enum of 10,000 values', { enum: names(10_000) }, 400_000],
    [
      'a const of 2 MB among 10,000 values',
      { const: 'a'.repeat(2e6), enum: [...names(10_000), 'a'.repeat(2e6)] },
      900_000,
    ],
    ['3,000 branches told apart by a property', { oneOf: names(3000).map(kind) }, 1_500_000],
    ['3,000 constants of oneOf', { oneOf: names(3000).map((name) => ({ const: name })) }, 500_000],
    [
      'a required name of 5,000 characters',
      { type: 'object', required: ['n'.repeat(5000)], additionalProperties: true },
      1_500_000,
    ],
    [
      '1,000 branches of allOf that add a property each',
      { allOf: names(1000).map((name) => ({ properties: { [name]: true } })) },
      500_000,
    ],
  ])('compiles within its steps: %s', (_title, schema, stepsMax) => {
    const { steps, refusal } = compile(schema)
    expect(refusal).toBeUndefined()
    expect(steps).toBeLessThan(stepsMax)
  })
})

describe('an absurd schema', () => {
  const shared = { $defs: { big: { properties: properties(40_000) } } }
  it.each<[string, unknown]>([
    ['an enum of 190,000 values', { enum: names(190_000) }],
    ['380,000 required names', { type: 'object', required: names(380_000) }],
    ['400,000 items', { prefixItems: Array.from({ length: 400_000 }, () => true) }],
    [
      '40,000 properties under 1,000 branches',
      { ...shared, allOf: names(1000).map(() => ({ $ref: '#/$defs/big' })) },
    ],
    [
      '40,000 properties beside 1,000 branches',
      { properties: properties(40_000), anyOf: names(1000).map(kind) },
    ],
    [
      '3,000 branches that only one pair tells apart each',
      {
        oneOf: names(3000).map((name) => ({
          type: 'object',
          properties: { [name]: { const: 1 } },
          required: [name],
        })),
      },
    ],
    ['100,000 different types', { allOf: [{ type: names(100_000) }, { type: names(100_001) }] }],
    [
      'patterns with many readings',
      { pattern: '(a*)*'.repeat(300), minLength: 3, maxLength: 3000 },
    ],
    [
      '10,000 references in a row',
      {
        $ref: '#/$defs/name_0',
        $defs: Object.fromEntries(
          names(10_000).map((name, at) => [name, { $ref: `#/$defs/name_${at + 1}`, title: name }]),
        ),
      },
    ],
    ['required that is not a list', { allOf: [{ required: 5 }, { required: 6 }] }],
    ['a type of a megabyte', { type: 'x'.repeat(1e6) }],
  ])('is refused within the budget, in a short message: %s', (_title, schema) => {
    const { steps, refusal } = compile(schema)
    expect(steps).toBeLessThan(PREPARATION_STEPS_MAX + 200_000)
    expect(refusal).toMatch(/^Invalid schema at 'schema/)
    expect(refusal?.length).toBeLessThan(1000)
  })
})
