import { describe, expect, it } from 'vitest'

import { SchemaCompiler } from '#workers/sampling/constraint/json-schema.ts'

import { accepts, constrain, writeAtRandom } from './random-json.ts'

const compile = (schema: object) =>
  new SchemaCompiler('response_format').compileRoot({ type: 'string', ...schema }, 'schema')

// Written by zod 4.4.3: `z.toJSONSchema(z.uuid())` and so on.
const ZOD = {
  uuid: '^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$',
  email:
    "^(?:[A-Za-z0-9_'+\\-]+\\.)*[A-Za-z0-9_'+\\-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
  'date-time':
    '^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))T(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:Z))$',
  ipv4: '^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$',
  ipv6: '^(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,4}|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4}:((:[0-9a-fA-F]{1,4}){1,6})|:((:[0-9a-fA-F]{1,4}){1,7}|:))$',
} as const

describe('a string with several limits keeps them all', () => {
  it.each([
    [{ pattern: '^[a-z]+$', maxLength: 3 }, ['a', 'abc'], ['', 'abcd', 'ab1']],
    [{ pattern: '\\d', minLength: 2, maxLength: 3 }, ['a1', '1é2'], ['1', 'ab', '1234']],
    [{ pattern: '^"+$', maxLength: 2 }, ['"', '""'], ['"""']],
    [{ format: 'uri', maxLength: 12 }, ['https://a.bc'], ['https://a.bcd', 'abc']],
    [{ format: 'email', pattern: '@example\\.org$' }, ['a.b@example.org'], ['a@example.com']],
    [
      { format: 'date-time', pattern: ZOD['date-time'] },
      ['2024-12-31T23:59:59Z', '2024-12-31T23:59:59.123Z'],
      ['2024-12-31T23:59:59+01:00', '2024-02-30T00:00:00Z'],
    ],
    [
      { format: 'email', pattern: ZOD.email, minLength: 6, maxLength: 9 },
      ['a@b.org', 'ab@b.de'],
      ['a@b.c', 'a@b.d', 'ann@b.info.org'],
    ],
  ])('%j', (schema, right, wrong) => {
    const grammar = compile(schema)
    for (const text of right) expect(accepts(grammar, JSON.stringify(text)), text).toBe(true)
    for (const text of wrong) expect(accepts(grammar, JSON.stringify(text)), text).toBe(false)
  })

  it.each(Object.entries(ZOD))('%s beside its pattern', (format, pattern) => {
    const factory = constrain(compile({ format, pattern }))
    for (let seed = 1; seed <= 20; seed += 1) {
      const text = writeAtRandom(factory, seed)
      if (text !== undefined) expect(JSON.parse(text)).toMatch(new RegExp(pattern))
    }
    expect(writeAtRandom(factory, 1)).toBeDefined()
  })
})

it('needs no more time for many strings than for a few', () => {
  const limits = { type: 'string', pattern: ZOD.email, format: 'email' }
  const properties = (limit: (index: number) => object) =>
    Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`p${index}`, limit(index)]))
  expect(() => compile({ type: 'object', properties: properties(() => limits) })).not.toThrow()
  const different = properties((index) => ({ ...limits, maxLength: 100 + index }))
  expect(() => compile({ type: 'object', properties: different })).toThrow('too large')
})
