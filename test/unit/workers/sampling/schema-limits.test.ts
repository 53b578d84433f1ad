import { describe, expect, it } from 'vitest'

import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

import { accepts, constrain, writeAtRandom } from './random-json.ts'

const compile = (schema: unknown) =>
  new SchemaCompiler('response_format').compileRoot(schema, 'schema')

describe('a limit beside another keyword', () => {
  it.each([
    [{ type: 'integer', enum: [1, 5, 10], minimum: 4 }, ['5', '10'], ['1']],
    [{ enum: [1, 5, 10], exclusiveMaximum: 5 }, ['1'], ['5', '10']],
    [{ type: 'string', enum: ['a', 'bbb', '🙂🙂'], minLength: 2 }, ['"bbb"', '"🙂🙂"'], ['"a"']],
    [{ enum: ['a', 'b1', 7], pattern: '\\d' }, ['"b1"', '7'], ['"a"']],
    [{ allOf: [{ enum: [1, 2, 3] }, { minimum: 3 }] }, ['3'], ['1', '2']],
    [{ enum: ['2024-02-01', 3], format: 'date' }, ['"2024-02-01"', '3'], ['"2024-02-02"']],
    [{ allOf: [{ type: 'number' }, { type: ['integer', 'null'] }] }, ['7'], ['7.5', 'null']],
    [
      { type: 'object', required: ['a'], additionalProperties: { type: 'integer' } },
      ['{"a":1}', '{"a":1,"b":2}'],
      ['{"a":"x"}', '{"a":1,"b":"x"}'],
    ],
  ])('holds as well: %j', (schema, right, wrong) => {
    const grammar = compile(schema)
    for (const text of right) expect(accepts(grammar, text), text).toBe(true)
    for (const text of wrong) expect(accepts(grammar, text), text).toBe(false)
  })

  it.each([
    [{ type: 'object', enum: [{ a: 1 }], required: ['b'] }, "'required' beside a listed object"],
    [{ enum: [[1], [2, 3]], minItems: 2 }, "'minItems' beside a listed array"],
    [{ const: 'x', format: 'date' }, "may not have the 'format'"],
    [
      {
        allOf: [
          { type: 'object', properties: { a: true }, additionalProperties: { type: 'null' } },
          { properties: { b: { type: 'integer' } } },
        ],
      },
      "limits 'b'",
    ],
    [{ enum: [1, 2], minimum: 3 }, 'no listed value has the stated type and limits'],
    [{ enum: ['a'], minLength: -1 }, "'minLength'"],
    [{ allOf: [{ type: 'number', minimum: 'x' }, { minimum: 3 }] }, "'minimum'"],
  ])('is refused where it cannot be kept: %j', (schema, reason) => {
    expect(() => compile(schema)).toThrow(reason)
  })
})

describe('bounds closer to a number than its decimals', () => {
  it.each([
    [{ type: 'integer', minimum: 5.0000000001, maximum: 6 }, '6', '5'],
    [{ type: 'integer', exclusiveMaximum: 6, minimum: 4.9999999999 }, '5', '4'],
    [{ type: 'number', minimum: 1e-7, maximum: 3 }, '0.000001', '0'],
    [{ type: 'number', maximum: -1e-7, minimum: -3 }, '-0.000001', '0'],
    [{ type: 'number', minimum: 0.1, maximum: 0.3 }, '0.3', '0.31'],
    [{ type: 'integer', minimum: -1e300, maximum: 1e300 }, '999999999999999', '1e15'],
  ])('%j: %s, but not %s', (schema, right, wrong) => {
    const grammar = compile(schema)
    expect(accepts(grammar, right)).toBe(true)
    expect(accepts(grammar, wrong)).toBe(false)
  })
})

describe('the branches of oneOf', () => {
  const kind = (name: string, rest = {}) => ({
    type: 'object',
    properties: { kind: { const: name } },
    required: ['kind'],
    ...rest,
  })
  it.each([
    [[{ minLength: 3 }, { minimum: 5 }], 'each takes all values of the other type'],
    [[{ type: 'string' }, { minimum: 5 }], 'the second takes any string'],
    [[kind('a', { nullable: true }), kind('b', { type: ['object', 'null'] })], 'both take null'],
    [[{ const: { a: 1, b: 2 } }, { const: { b: 2, a: 1 } }], 'the order of members says nothing'],
  ])('are refused where both may match: %j, as %s', (oneOf, _) => {
    expect(() => compile({ oneOf })).toThrow("branches 0 and 1 of 'oneOf'")
  })

  it.each([
    [[kind('a'), kind('b', { nullable: true })]],
    [
      [
        { type: 'string', minLength: 3 },
        { type: 'number', minimum: 5 },
      ],
    ],
    [[kind('a'), { type: 'null' }]],
  ])('are told apart: %j', (oneOf) => {
    expect(() => compile({ oneOf })).not.toThrow()
  })
})

describe('a form without an end', () => {
  const endless = { type: 'array', items: { $ref: '#/$defs/endless' }, minItems: 1 }

  it.each([
    [{ type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] }],
    [{ $ref: '#/$defs/endless', $defs: { endless } }],
    [{ type: 'string', pattern: '^\\ud83d$' }],
  ])('is refused: %j', (schema) => {
    expect(() => compile(schema)).toThrow('none that comes to an end')
  })

  it('is never begun if another is offered', () => {
    const schema = {
      type: 'array',
      items: { anyOf: [{ $ref: '#/$defs/endless' }, { type: 'boolean' }] },
      minItems: 1,
      maxItems: 3,
      $defs: { endless },
    }
    const factory = constrain(compile(schema))
    for (let seed = 0; seed < 20; seed += 1) {
      const values = JSON.parse(writeAtRandom(factory, seed) ?? 'null') as unknown[]
      expect(values.every((value) => typeof value === 'boolean')).toBe(true)
    }
  })
})
