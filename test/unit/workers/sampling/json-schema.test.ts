import Schema from 'typebox/schema'
import { describe, expect, it } from 'vitest'

import { fixtureTokenizer } from '#test/unit/workers/text/model-folders.ts'
import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

import { accepts, constrain, writeAtRandom } from './random-json.ts'

const { pieces, findTokenId } = fixtureTokenizer('llama')

function compile(schema: unknown) {
  return new SchemaCompiler('response_format').compileRoot(schema, 'schema')
}

const PERSON = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 8 },
    age: { type: 'integer', minimum: 0, maximum: 130 },
    role: { enum: ['admin', 'user', null, 3] },
    tags: { type: 'array', items: { type: 'boolean' }, minItems: 1, maxItems: 3 },
  },
  required: ['name', 'tags'],
  additionalProperties: false,
}

const SCHEMAS: Readonly<Record<string, object>> = {
  'any object': { type: 'object' },
  'listed properties': PERSON,
  'a recursive reference': {
    $ref: '#/$defs/node',
    $defs: {
      node: {
        type: 'object',
        properties: {
          value: { type: 'number' },
          next: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] },
        },
        required: ['value', 'next'],
      },
    },
  },
  'a map with typed values': { type: 'object', additionalProperties: { type: 'integer' } },
  'others beside listed properties': {
    type: 'object',
    properties: { ab: { const: 1 }, abc: { const: 2 }, é: { const: 3 } },
    required: ['ab'],
    additionalProperties: { type: 'boolean' },
  },
  'types side by side': { type: ['string', 'null', 'integer'] },
  'a tuple': {
    type: 'array',
    prefixItems: [{ const: 'x' }, { type: 'integer' }],
    items: false,
    minItems: 2,
  },
  'parts put together': {
    allOf: [
      { $ref: '#/definitions/named' },
      { properties: { size: { type: 'integer', exclusiveMinimum: 2 } }, required: ['size'] },
    ],
    definitions: {
      named: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    },
  },
  'one of several kinds': {
    oneOf: [
      { type: 'object', properties: { kind: { const: 'a' } }, required: ['kind'] },
      {
        type: 'object',
        properties: { kind: { const: 'b' }, n: { type: 'integer' } },
        required: ['kind', 'n'],
      },
      { type: 'string' },
    ],
  },
  'decimal bounds': { type: 'number', minimum: -1.5, exclusiveMaximum: 0.25 },
  'negative integers': { type: 'integer', minimum: -1234, maximum: -56 },
  'a pattern': { type: 'string', pattern: '^(?:[A-F]\\d{2}|x+"?y)-[^a-z\\s]{1,3}$' },
}

describe('a schema', () => {
  it.each(Object.entries(SCHEMAS))('holds for every text under it: %s', (_, schema) => {
    const factory = constrain(compile(schema))
    const texts = Array.from({ length: 25 }, (_, seed) => writeAtRandom(factory, seed))
    const whole = texts.filter((text) => text !== undefined)
    expect(whole.length).toBeGreaterThan(10)
    for (const text of whole) {
      const value: unknown = JSON.parse(text)
      expect(Schema.Check(schema, value), `${text} must satisfy the schema`).toBe(true)
    }
  })

  it.each([
    [PERSON, '{"name":"Ann","tags":[true]}', true],
    [PERSON, '{"name": "Ann", "age": 130, "role": null, "tags": [true, false]}', true],
    [PERSON, '{"name":"Ann"}', false],
    [PERSON, '{"name":"","tags":[true]}', false],
    [PERSON, '{"name":"Ann","age":131,"tags":[true]}', false],
    [PERSON, '{"name":"Ann","tags":[]}', false],
    [PERSON, '{"name":"Ann","tags":[true],"x":1}', false],
    [{ type: 'object', properties: { a: {} }, additionalProperties: true }, '{"":1,"ab":2}', true],
    [{ type: 'object' }, '{"a":{"b":[1,-2.5e+10,"\\u00e9 \\n 日本🙂",null,[]]}}', true],
    [{ type: 'object' }, '{"a":"\\ud800"}', false],
    [{ type: 'object' }, '{"a":01}', false],
    [{ type: 'string', format: 'date' }, '"2024-02-28"', true],
    [{ type: 'string', format: 'date' }, '"2024-02-30"', false],
    [{ type: 'string', format: 'date-time' }, '"2024-12-31T23:59:59.5Z"', true],
    [{ type: 'string', format: 'uuid' }, '"123e4567-e89b-12d3-a456-426614174000"', true],
    [{ type: 'string', format: 'ipv4' }, '"256.1.1.1"', false],
    [{ type: 'string', format: 'email' }, '"ann.b@example.org"', true],
    [{ type: 'string', pattern: 'b+' }, '"abbc"', true],
    [{ type: 'string', pattern: '^\\t\\n\\v\\f\\r\\0$' }, '"\\t\\n\\u000b\\f\\r\\u0000"', true],
    [{ type: 'string', pattern: '^a|c$' }, '"xxc"', true],
    [{ type: 'string', pattern: '^a|c$' }, '"xax"', false],
    [{ type: 'string', pattern: '^[\\d-z]$' }, '"-"', true],
    [{ type: 'string', pattern: '^[\\d-z]$' }, '"z"', true],
    [{ type: 'string', pattern: '^[\\d-z]$' }, '"4"', true],
    [{ type: 'string', pattern: '^[\\d-z]$' }, '"a"', false],
    [{ type: 'string', pattern: '^[+-\\d]$' }, '"-"', true],
    [{ type: 'string', pattern: '^[+-\\d]$' }, '"."', false],
    [{ type: 'string', pattern: '^[^a]$' }, '"\u{10FFFF}"', true],
    [{ type: 'string', pattern: '^[\u{10FFFE}-\u{10FFFF}]$' }, '"\u{10FFFF}"', true],
    [{ type: 'string', pattern: '^[\u{10FFFE}-\u{10FFFF}]$' }, '"\u{10FFFD}"', false],
    [{ $ref: '#/$defs/a%20b', $defs: { 'a b': { const: 1 } } }, '1', true],
    [{ $ref: '#/$defs/a~1b', $defs: { 'a/b': { const: 1 } } }, '1', true],
    [{ $ref: '#/$defs/a~01', $defs: { 'a~1': { const: 1 } } }, '1', true],
    [{ $ref: '#/$defs/100%', $defs: { '100%': { const: 1 } } }, '1', true],
    [{ $ref: '#/$defs/a%20b', $defs: { 'a b': { const: 1 } } }, '2', false],
    [{ type: 'integer', minimum: 95, maximum: 1203 }, '1200', true],
    [{ type: 'integer', minimum: 95, maximum: 1203 }, '1204', false],
    [{ type: 'integer', minimum: 95, maximum: 1203 }, '94', false],
    [{ type: ['string'], nullable: true }, 'null', true],
    [{ allOf: [{ type: 'string', nullable: true }, { type: 'string' }] }, 'null', false],
    [{ allOf: [{ type: 'string', nullable: true }, { type: ['string', 'null'] }] }, 'null', true],
    [{ anyOf: [{ type: 'string' }], nullable: true }, 'null', true],
    // Names that JSON Schema does not know are notes: tools of many clients have them.
    [{ type: 'integer', format: 'int32', strict: true, 'x-order': 1, enumNames: ['a'] }, '7', true],
    [{ type: 'integer', format: 'int32', strict: true }, '"7"', false],
    [{ type: 'string', format: 'password' }, '"any text"', true],
    [{ type: 'string', format: 'uri', minLength: 1, maxLength: 2083 }, '"https://a.b/c"', true],
    [{ type: 'string', format: 'uri', minLength: 1, maxLength: 2083 }, '"any text"', false],
    [true, '[1, {"a": "b"}]', true],
  ] as const)('%j accepts %s: %s', (schema, text, expected) => {
    expect(accepts(compile(schema), text)).toBe(expected)
  })

  it('agrees with comparison on every integer near its bounds', () => {
    for (const [minimum, maximum] of [
      [0, 0],
      [7, 13],
      [-13, 7],
      [99, 101],
      [-205, -98],
    ] as const) {
      const grammar = compile({ type: 'integer', minimum, maximum })
      for (let value = minimum - 12; value <= maximum + 12; value += 1) {
        expect(accepts(grammar, String(value)), `${value}`).toBe(
          value >= minimum && value <= maximum,
        )
      }
    }
  })

  it.each([
    [{ not: { type: 'string' } }, 'schema', "'not'"],
    [
      { type: 'object', properties: { a: { type: 'array', uniqueItems: true } } },
      'schema.properties.a',
      "'uniqueItems'",
    ],
    [{ type: 'integer', multipleOf: 0.3 }, 'schema', "'multipleOf'"],
    [{ type: 'text' }, 'schema', "'text'"],
    [false, 'schema', 'no value'],
    [{ $ref: '#/$defs/none' }, 'schema', 'points nowhere'],
    [{ $ref: 'https://example.org/x' }, 'schema', "'$ref'"],
    [{ $ref: '#' }, 'schema', 'refers to itself'],
    [{ anyOf: [{ $ref: '#' }] }, 'schema.anyOf.0', 'refers to itself'],
    [{ oneOf: [{ type: 'integer' }, { type: 'number' }] }, 'schema', 'branches 0 and 1'],
    [{ allOf: [{ type: 'string' }, { type: 'object' }] }, 'schema', 'exclude each other'],
    [{ type: 'string', pattern: '(?=a)' }, 'schema', 'look-around'],
    [{ type: 'string', pattern: '\\bword' }, 'schema', '\\b'],
    [{ type: 'string', format: 'regex' }, 'schema', "'regex'"],
    [{ pattern: 'a', minLength: 1500 }, 'schema', 'too large to be combined'],
    [{ pattern: '^a*$', format: 'date' }, 'schema', 'no value satisfies it'],
    [{ type: 'object', if: {} }, 'schema', "'if'"],
    [{ type: 'object', patternProperties: { a: {} } }, 'schema', "'patternProperties'"],
    [{ type: 'integer', minimum: 3, maximum: 2 }, 'schema', 'bounds'],
    [{ type: 'array', items: { enum: [] } }, 'schema.items', "'enum'"],
    ['text', 'schema', 'object or a boolean'],
    [nested(100), 'schema', 'too deeply'],
  ])('%j is refused at %s because of %s', (schema, path, reason) => {
    expect(() => compile(schema)).toThrow(
      expect.objectContaining({
        kind: 'invalidRequest',
        param: 'response_format',
        message: expect.stringMatching(
          new RegExp(`^Invalid schema at '${RegExp.escape(path)}.*${RegExp.escape(reason)}`),
        ),
      }),
    )
  })

  it('that multiplies with every reference is refused in time', () => {
    const $defs = Object.fromEntries(
      Array.from({ length: 40 }, (_, k) => [
        `d${k}`,
        { allOf: [{ $ref: `#/$defs/e${k + 1}` }, { $ref: `#/$defs/d${k + 1}` }], minLength: k },
      ]).concat(
        Array.from({ length: 40 }, (_, k) => [
          `e${k}`,
          { allOf: [{ $ref: `#/$defs/d${k + 1}` }, { $ref: `#/$defs/e${k + 1}` }], minLength: k },
        ]),
      ),
    )
    expect(() => compile({ $ref: '#/$defs/d0', $defs })).toThrow(
      /too large|too deeply|points nowhere/,
    )
  })

  it('that can be read in ever more ways ends its answer before it delays all others', () => {
    // Every letter a may be the one that the last two hundred characters follow.
    const factory = constrain(compile({ type: 'string', pattern: '^[\\s\\S]*a[\\s\\S]{200}$' }))
    const constraint = factory.create()
    const write = (text: string): void => {
      constraint.mask(new Float32Array(pieces.size))
      for (const letter of text) constraint.accept(findTokenId(letter) as number)
    }
    write('"')
    expect(() => {
      for (let step = 0; step < 100; step += 1) write('ab')
    }).toThrow('the grammar is too ambiguous')
  })
})

function nested(depth: number): object {
  return depth === 0 ? { type: 'null' } : { type: 'array', items: nested(depth - 1) }
}
