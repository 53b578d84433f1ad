import fc, { type Arbitrary } from 'fast-check'

import type { Schema } from './document.ts'

/**
 * Values that JSON.stringify cannot write, such as numbers beyond all bounds, are texts of this
 * form.
 */
const RAW = /"\\u0001raw:(.*?)\\u0001"/g
const raw = (text: string): string => `\u0001raw:${text}\u0001`

/** JSON text of a value that `hostileValue` may have made. */
export const toJson = (value: unknown): string =>
  (JSON.stringify(value) ?? 'null').replace(RAW, '$1')

/** Texts that have broken something somewhere. */
export const HOSTILE_TEXTS: readonly string[] = [
  '',
  ' ',
  '\u0000',
  'a\u0000b',
  '\ud800',
  'a\udfffb',
  '\udc00\ud800',
  '\ufeff',
  '\u202e',
  '😀',
  'e\u0301',
  'ﷺ',
  '\u{e0001}',
  'İı',
  'ß',
  '\u2028',
  '\r\nx-injected: 1',
  '\t',
  '\u007f',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  'null',
  'undefined',
  'true',
  "' or 1=1--",
  '"; drop table users;--',
  '$1',
  '%s%n',
  '#{7*7}',
  '{{7*7}}',
  '<script>',
  '../../etc/passwd',
  '/etc/passwd\u0000.png',
  'C:\\',
  'file:///etc/passwd',
  '//evil.example',
  'http://169.254.169.254/',
  'http://[::ffff:127.0.0.1]/',
  'https://a@evil.example',
  'data:,x',
  'javascript:alert(1)',
  '-1',
  '0',
  '1e999',
  'NaN',
  'Infinity',
  '9'.repeat(400),
  '0x10',
  '١٢',
  '1970-01-01T00:00:00Z',
  '+275760-09-13',
  '9999-12-31T23:59:60Z',
  '0000-00-00',
  '-1h',
  '24h',
  'a@b',
  'a@b.example',
  '"a b"@example.com',
  `${'a'.repeat(65)}@example.com`,
  '+15005550006',
  '00000000-0000-0000-0000-000000000000',
  'ffffffff-ffff-ffff-ffff-ffffffffffff',
  'eyJ.eyJ.x',
  '*',
  '%',
  '_',
  '\\',
  "'",
  '(((((',
  '(a+)+$',
  'a'.repeat(300),
  'a'.repeat(5000),
  '🎈'.repeat(900),
  '<|im_start|>',
  '<|endoftext|>',
  '</s>',
  '[INST]',
  '<0x00>',
]

/** An unexpected text. */
export const hostileText: Arbitrary<string> = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...HOSTILE_TEXTS) },
  { weight: 2, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }) },
  { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 20 }) },
  {
    weight: 1,
    arbitrary: fc
      .array(fc.nat(0xffff), { maxLength: 6 })
      .map((units) => String.fromCharCode(...units)),
  },
)

const hostileNumber: Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(
    0,
    -0,
    -1,
    1,
    0.5,
    1e-320,
    2 ** 31,
    2 ** 32 + 1,
    2 ** 53,
    -(2 ** 63),
    1e308,
    -1e308,
    ...['1e999', '-1e999', '1E400', '123456789012345678901234567890', '-0', '1.0', '1e2'].map(raw),
  ),
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
)

const deep = (depth: number, isList: boolean): unknown => {
  let value: unknown = 1
  for (let level = 0; level < depth; level += 1) value = isList ? [value] : { a: value }
  return value
}

const NAMES = ['__proto__', 'constructor', 'prototype', 'toString', 'length', '', 'a', '\u0000']

/** Any value of JSON, the stranger the likelier. */
export const hostileValue: Arbitrary<unknown> = fc.oneof(
  { weight: 4, arbitrary: hostileText },
  { weight: 3, arbitrary: hostileNumber },
  { weight: 2, arbitrary: fc.constantFrom<unknown>(null, true, false, [], {}, [null], [[]], [{}]) },
  { weight: 1, arbitrary: fc.dictionary(fc.constantFrom(...NAMES), fc.constantFrom(1, 'x', {})) },
  { weight: 1, arbitrary: fc.array(fc.oneof(hostileText, hostileNumber), { maxLength: 5 }) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constantFrom(5, 63, 64, 65, 199, 200, 201, 3000), fc.boolean())
      .map(([depth, isList]) => deep(depth, isList)),
  },
  { weight: 1, arbitrary: fc.constantFrom(300, 3000).map((count) => Array(count).fill('x')) },
  { weight: 1, arbitrary: fc.jsonValue() },
)

/** Names of fields that are taken as they are meant, most of the time. */
export type Hints = Readonly<Record<string, readonly unknown[]>>

/** Values that fit a schema; where a name gives a hint, mostly that one. */
export function valid(schema: Schema, hints: Hints, name = ''): Arbitrary<unknown> {
  const hint = hints[name]
  const plain = fitting(schema, hints, name)
  if (hint === undefined) return plain
  return fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(...hint) },
    { weight: 1, arbitrary: plain },
  )
}

function fitting(schema: Schema, hints: Hints, name: string): Arbitrary<unknown> {
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  if (schema.const !== undefined) return fc.constant(schema.const)
  const options = schema.anyOf ?? schema.oneOf
  if (options !== undefined && options.length > 0) {
    return fc.oneof(...options.map((option) => fitting(option, hints, name)))
  }
  const shapes = shapesOf(schema)
  if (shapes.length > 0) return fc.oneof(...shapes.map((shape) => objectOf(shape, hints)))
  const types = typeof schema.type === 'string' ? [schema.type] : (schema.type ?? ['object'])
  return fc.oneof(...types.map((type) => ofType(type, schema, hints)))
}

/** Each shape that an object may have by its `type`, as a schema of its own. */
function shapesOf({ allOf = [] }: Schema): Schema[] {
  return allOf.flatMap(({ if: condition, then: shape }) => {
    if (condition === undefined || shape === undefined) return []
    return [
      {
        properties: { ...shape.properties, ...condition.properties },
        required: [...(shape.required ?? []), 'type'],
      },
    ]
  })
}

function ofType(type: string, schema: Schema, hints: Hints): Arbitrary<unknown> {
  if (type === 'null') return fc.constant(null)
  if (type === 'boolean') return fc.boolean()
  if (type === 'integer' || type === 'number') return numberOf(type, schema)
  if (type === 'string') return textOf(schema)
  if (type === 'array') {
    const minLength = Math.min(schema.minItems ?? 0, 5)
    const maxLength = Math.max(minLength, Math.min(schema.maxItems ?? 3, 3))
    return fc.array(fitting(schema.items ?? {}, hints, ''), { minLength, maxLength })
  }
  return objectOf(schema, hints)
}

function objectOf(schema: Schema, hints: Hints): Arbitrary<unknown> {
  const properties = Object.entries(schema.properties ?? {})
  if (properties.length === 0) {
    return fc.dictionary(fc.string({ minLength: 1, maxLength: 8 }), fc.constantFrom(0, 50, 'x'), {
      maxKeys: 2,
    })
  }
  const members = properties.map(([name, inner]) => {
    const value = valid(inner, hints, name)
    const always = schema.required?.includes(name) === true || hints[name] !== undefined
    const present = fc.oneof(
      { weight: always ? 12 : 2, arbitrary: fc.constant(true) },
      { weight: always ? 1 : 9, arbitrary: fc.constant(false) },
    )
    return fc.tuple(present, value).map(([is, made]) => (is ? [[name, made] as const] : []))
  })
  return fc.tuple(...members).map((lists) => Object.fromEntries(lists.flat()))
}

function numberOf(type: 'integer' | 'number', schema: Schema): Arbitrary<unknown> {
  const min = schema.minimum ?? schema.exclusiveMinimum ?? -10
  const max = Math.max(min, schema.maximum ?? min + 100)
  const edges = fc.constantFrom(min, max, Math.min(max, Math.max(min, 0)), min + (max - min) / 2)
  if (type === 'integer') {
    const near = fc.integer({ min: Math.ceil(min), max: Math.floor(Math.min(max, min + 16)) })
    return fc.oneof(near, edges.map(Math.trunc))
  }
  return fc.oneof(edges, fc.double({ min, max, noNaN: true }))
}

function textOf(schema: Schema): Arbitrary<unknown> {
  if (schema.format === 'email') return fc.constantFrom('a@example.com', 'b.c+d@example.org')
  if (schema.format === 'uuid') return fc.uuid()
  if (schema.format === 'uri') return fc.constantFrom('https://example.com/', 'http://a.example/b')
  if (schema.format === 'date-time') return fc.constantFrom('2030-01-01T00:00:00Z')
  const minLength = Math.min(schema.minLength ?? 0, 100)
  const maxLength = Math.max(minLength, Math.min(schema.maxLength ?? 12, 12))
  if (schema.pattern !== undefined) {
    return fc.oneof(
      fc.constantFrom('name', 'a-b_c'),
      fc.string({ unit: fc.constantFrom(...'abcdefXYZ0123_-'), minLength: 1, maxLength: 12 }),
    )
  }
  const text = fc.string({ unit: 'grapheme', minLength, maxLength })
  return fc.oneof(fc.constantFrom('Hello there.', 'x'.repeat(Math.max(1, minLength))), text)
}

/** One change to a value: where (taken modulo what there is), what kind, and with what. */
export interface Mutation {
  readonly at: number
  readonly kind: 'replace' | 'remove' | 'add' | 'wrap'
  readonly name: string
  readonly value: unknown
}

/** Changes to make to a value that fits. */
export const mutations: Arbitrary<readonly Mutation[]> = fc.oneof(
  { weight: 3, arbitrary: fc.constant([]) },
  {
    weight: 7,
    arbitrary: fc.array(
      fc.record({
        at: fc.nat(200),
        kind: fc.constantFrom('replace', 'replace', 'replace', 'remove', 'add', 'wrap'),
        name: fc.oneof(fc.constantFrom(...NAMES), hostileText),
        value: hostileValue,
      }),
      { minLength: 1, maxLength: 3 },
    ),
  },
)

/** The value with the changes made to a copy of it. */
export function mutate(value: unknown, changes: readonly Mutation[]): unknown {
  return changes.reduce((current: unknown, change) => {
    const places = listPlaces(current)
    return changeAt(current, places[change.at % places.length] as readonly string[], change)
  }, value)
}

function listPlaces(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (path.length > 6 || typeof value !== 'object' || value === null) return [path]
  const inner = Object.entries(value)
    .slice(0, 40)
    .flatMap(([name, part]) => listPlaces(part, [...path, name]))
  return [path, ...inner]
}

function changeAt(value: unknown, path: readonly string[], change: Mutation): unknown {
  const [name, ...rest] = path
  if (name === undefined) {
    if (change.kind === 'wrap') return [value]
    if (change.kind !== 'add' || !isObject(value)) return change.value
    return Object.fromEntries([...Object.entries(value), [change.name, change.value]])
  }
  const isHere = rest.length === 0 && change.kind === 'remove'
  if (Array.isArray(value)) {
    const index = Number(name)
    if (isHere) return value.toSpliced(index, 1)
    return value.map((part, at) => (at === index ? changeAt(part, rest, change) : part))
  }
  return Object.fromEntries(
    Object.entries(value as object).flatMap(([key, part]) => {
      if (key !== name) return [[key, part]]
      return isHere ? [] : [[key, changeAt(part, rest, change)]]
    }),
  )
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A text as it stands in an address. */
export const encode = (text: string): string => encodeURIComponent(text.toWellFormed())
/** A value as a text field holds it. */
export const asText = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
