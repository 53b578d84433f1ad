import fc, { type Arbitrary } from 'fast-check'

import type { Operation, Schema } from './document.ts'
import { formBody } from './forms.ts'
import type { Known } from './requests.ts'
import {
  asText,
  encode,
  HOSTILE_TEXTS,
  hostileValue,
  mutate,
  mutations,
  toJson,
  valid,
} from './values.ts'

/** A body with the type that it claims to be of. */
export interface Content {
  readonly type: string | undefined
  readonly body: string
}

const JSON_TYPES = [
  'application/json; charset=utf-8',
  'application/JSON',
  'text/plain',
  'application/json;',
  'x',
  'application/x-www-form-urlencoded',
  'multipart/form-data',
  'text/json',
  'application/json, a/b',
  'application/json; charset=utf-16',
  'application/octet-stream',
  `a/${'b'.repeat(3000)}`,
  '',
]

/** Bodies for an operation, whole, changed or broken. */
export function contentOf(operation: Operation, known: Known): Arbitrary<Content | undefined> {
  if (operation.body === undefined) {
    const unexpected = fc.tuple(fc.constantFrom('application/json', ...JSON_TYPES), hostileValue)
    return fc.oneof(
      { weight: 9, arbitrary: fc.constant(undefined) },
      {
        weight: 1,
        arbitrary: unexpected.map(([type, value]) => ({ type, body: bytes(toJson(value)) })),
      },
    )
  }
  const value = fc
    .tuple(valid(operation.body.schema, known.hints), mutations)
    .map(([plain, changes]) => mutate(plain, changes))
  const { schema } = operation.body
  if (operation.body.type === 'form') return formBody(value, namesOf(schema), known.files)
  const json = value.map((made) => bytes(toJson(made)))
  const own = { type: 'application/json' }
  return fc.oneof(
    { weight: 30, arbitrary: json.map((body) => ({ ...own, body })) },
    { weight: 2, arbitrary: brokenJson(json).map((body) => ({ ...own, body })) },
    {
      weight: 2,
      arbitrary: fc
        .tuple(fc.option(fc.constantFrom(...JSON_TYPES), { nil: undefined }), json)
        .map(([type, body]) => ({ type, body })),
    },
    {
      weight: 1,
      arbitrary: value.map((made) => ({
        type: 'application/x-www-form-urlencoded',
        body: Object.entries(typeof made === 'object' && made !== null ? made : {})
          .map(([name, part]) => `${encode(name)}=${encode(asText(part))}`)
          .join('&'),
      })),
    },
  )
}

const namesOf = (schema: Schema): readonly string[] => Object.keys(schema.properties ?? {})

const bytes = (text: string): string => Buffer.from(text, 'utf8').toString('latin1')

const SCRAPS = [
  ...[
    '',
    '{',
    '}',
    '[',
    '{"a":',
    '{"a":1,}',
    "{'a':1}",
    '{"a":1}{"a":2}',
    '\ufeff{}',
    '{"a":01}',
    '[1,',
  ],
  ...[
    '"',
    '"\\ud800"',
    'nul',
    'NaN',
    '-',
    '1',
    'null',
    'true',
    '[]',
    '""',
    '{"\u0000":1}',
    '{"a":"\u0000"}',
  ],
  ...[
    '{"__proto__":{"a":1}}',
    '{"constructor":{"prototype":{}}}',
    '\u0000',
    '{"a":1e999}',
    '/**/{}',
  ],
  '['.repeat(100_000),
  '{"a":'.repeat(50_000),
  `{"a":"${'\\u0000'.repeat(2000)}"}`,
].map(bytes)

/** Texts that are not JSON, nearly JSON, or JSON of the wrong kind. */
function brokenJson(json: Arbitrary<string>): Arbitrary<string> {
  return fc.oneof(
    fc.constantFrom(...SCRAPS, '\xff\xfe{}', '{"a":"\xff\xc0\xaf"}'),
    fc.tuple(json, fc.nat(400)).map(([text, at]) => text.slice(0, at)),
    fc
      .tuple(json, fc.nat(400), fc.constantFrom('\x00', '\xff', '"', '\\', '}', ',', '\r\n'))
      .map(([text, at, junk]) => text.slice(0, at) + junk + text.slice(at)),
    fc.constantFrom(...HOSTILE_TEXTS).map(bytes),
  )
}
