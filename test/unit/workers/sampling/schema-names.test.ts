import { describe, expect, it } from 'vitest'

import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

import { accepts } from './random-json.ts'

const compile = (schema: unknown) =>
  new SchemaCompiler('response_format').compileRoot(schema, 'schema')
const counts = { type: 'object', additionalProperties: { type: 'integer' } }
const listed = { ...counts, propertyNames: { type: 'string', enum: ['a', 'b'] } }

describe('the names of properties', () => {
  it.each([
    [listed, ['{}', '{"a":1}', '{"b":2}', '{"a":1,"b":2}'], ['{"c":1}', '{"a":"x"}', '{"":1}']],
    [{ ...listed, required: ['a', 'b'] }, ['{"a":1,"b":2}'], ['{"a":1}', '{}']],
    [{ ...listed, properties: { a: { type: 'null' } } }, ['{"a":null,"b":1}'], ['{"a":1}']],
    [{ ...listed, properties: { c: { type: 'null' } } }, ['{"a":1}'], ['{"c":null}']],
    [
      { ...listed, additionalProperties: false, properties: { a: true } },
      ['{"a":[]}'],
      ['{"b":1}'],
    ],
    [{ propertyNames: { const: 'x' } }, ['{}', '{"x":[]}'], ['{"y":1}']],
    [
      {
        ...counts,
        propertyNames: { $ref: '#/$defs/Name', nullable: true },
        $defs: { Name: { pattern: '^[a-z]{2}$' } },
      },
      ['{}', '{"ab":1}', '{"ab":1,"cd":2}'],
      ['{"a":1}', '{"AB":1}', '{null:1}'],
    ],
    [{ ...counts, propertyNames: { maxLength: 2 } }, ['{"":1}', '{"ab":1}'], ['{"abc":1}']],
    [{ ...counts, propertyNames: { minLength: 1 }, minProperties: 1 }, ['{"a":1}'], ['{}']],
  ])('are kept: %j', (schema, right, wrong) => {
    const grammar = compile(schema)
    for (const text of right) expect(accepts(grammar, text), text).toBe(true)
    for (const text of wrong) expect(accepts(grammar, text), text).toBe(false)
  })

  it.each([
    [{ ...listed, required: ['c'] }, "'c' is not allowed"],
    [{ ...counts, propertyNames: { type: 'integer' } }, "of the type 'string'"],
    [{ ...counts, propertyNames: { maxLength: 2 }, required: ['a'] }, 'must list names as well'],
    [{ ...counts, propertyNames: false }, 'false accepts no value'],
    [
      { allOf: [listed, { propertyNames: { maxLength: 2 } }] },
      "two different values of 'propertyN",
    ],
  ])('are refused where they cannot be: %j', (schema, reason) => {
    expect(() => compile(schema)).toThrow(reason)
  })
})

describe('the multiples of a number', () => {
  it.each([
    [{ type: 'integer', multipleOf: 5 }, ['0', '5', '-10', '123456789012345'], ['1', '05', '5.0']],
    [{ type: 'number', multipleOf: 7, minimum: 10, maximum: 30 }, ['14', '28'], ['7', '35', '15']],
    [{ multipleOf: 100, exclusiveMinimum: 0 }, ['100', '2300'], ['0', '-100', '150']],
    [{ type: ['integer', 'null'], multipleOf: 3 }, ['9', 'null'], ['10']],
    [{ enum: [1, 2, 4, 'a'], multipleOf: 2 }, ['2', '4', '"a"'], ['1']],
  ])('are kept: %j', (schema, right, wrong) => {
    const grammar = compile(schema)
    for (const text of right) expect(accepts(grammar, text), text).toBe(true)
    for (const text of wrong) expect(accepts(grammar, text), text).toBe(false)
  })

  it.each([
    [{ type: 'integer', multipleOf: 0.3 }, 'whole number from 1 to 100'],
    [{ type: 'number', multipleOf: 0.01 }, 'whole number from 1 to 100'],
    [{ type: 'integer', multipleOf: 101 }, 'whole number from 1 to 100'],
    [{ type: 'integer', multipleOf: 0 }, 'whole number from 1 to 100'],
    [{ type: 'integer', multipleOf: 7, minimum: 1, maximum: 6 }, 'no value satisfies it'],
  ])('are refused where they cannot be: %j', (schema, reason) => {
    expect(() => compile(schema)).toThrow(reason)
  })
})
