import { describe, expect, it } from 'vitest'

import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

import { accepts } from './random-json.ts'

const compile = (schema: unknown) =>
  new SchemaCompiler('response_format').compileRoot(schema, 'schema')
const list = { type: 'array', items: { type: 'integer' } }
const map = { type: 'object', additionalProperties: { type: 'integer' } }

describe('a keyword that cannot be enforced', () => {
  it.each([
    [{ ...list, uniqueItems: false }, ['[1,1]'], []],
    [{ ...list, uniqueItems: true, maxItems: 1 }, ['[]', '[1]'], ['[1,2]']],
    [{ ...list, contains: { const: 1 }, minContains: 0 }, ['[2]'], []],
    [{ ...list, minContains: 2, maxContains: 1 }, ['[]'], []],
    [{ ...list, additionalItems: false, unevaluatedItems: true }, ['[1]'], []],
    [{ type: 'integer', multipleOf: 1 }, ['7'], ['7.5']],
    [{ type: ['integer', 'null'], multipleOf: 0.5 }, ['7', 'null'], ['7.5']],
    [{ type: 'number', multipleOf: 1 }, ['7'], ['7.5', '1e2']],
    [{ type: ['number', 'null'], multipleOf: 1, maximum: 9 }, ['9', 'null'], ['8.5', '10']],
    [{ ...map, patternProperties: {}, propertyNames: { type: 'string' } }, ['{"a":1}'], []],
    [{ ...map, propertyNames: true, dependentRequired: {}, dependentSchemas: {} }, ['{}'], []],
    [{ ...map, dependencies: {}, unevaluatedProperties: {} }, ['{"a":1}'], ['{"a":"b"}']],
    [{ type: 'boolean', not: false }, ['true', 'false'], []],
    [{ type: 'boolean', $anchor: 'a', $dynamicAnchor: 'b' }, ['true'], ['1']],
  ])('is accepted where it limits nothing: %j', (schema, right, wrong) => {
    const grammar = compile(schema)
    for (const text of right) expect(accepts(grammar, text), text).toBe(true)
    for (const text of wrong) expect(accepts(grammar, text), text).toBe(false)
  })

  it.each([
    ['uniqueItems', { ...list, uniqueItems: true }],
    ['contains', { ...list, contains: { const: 1 } }],
    ['patternProperties', { ...map, patternProperties: { a: { type: 'null' } } }],
    ['not', { type: 'boolean', not: { const: true } }],
    ['unevaluatedProperties', { ...map, unevaluatedProperties: false }],
    ['dependentRequired', { ...map, dependentRequired: { a: ['b'] } }],
    ['$dynamicRef', { $dynamicRef: '#b' }],
  ])('is refused where it limits something: %s in %j', (keyword, schema) => {
    expect(() => compile(schema)).toThrow(`the keyword '${keyword}' is not supported`)
  })
})
