import { describe, expect, it } from 'vitest'

import { checkJsonText, SCHEMA_LIMITS, SchemaBudget } from '#api/inference/input-limits.ts'
import { conversationOf } from '#api/inference/messages/messages-input.ts'
import { RequestImages } from '#api/inference/request-images.ts'
import { JSON_TEXT_LIMITS } from '#shared/json.ts'

const list = (length: number, of: (index: number) => unknown): unknown[] =>
  Array.from({ length }, (_, index) => of(index))
const named = (length: number): Record<string, unknown> =>
  Object.fromEntries(list(length, (index) => [`name_${index}`, { type: 'string' }]) as [])
const nested = (levels: number): unknown =>
  levels === 0 ? { type: 'string' } : { type: 'array', items: nested(levels - 1) }

function refusalOf(work: () => void): { param?: string; message: string } | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    return error as { param?: string; message: string }
  }
}

describe('the budget of the schemas of a request', () => {
  it.each<[string, unknown, string]>([
    ['a const of 2 MB', { const: 'x'.repeat(2_000_000) }, 'characters'],
    ['an enum of 190,000 values', { enum: list(190_000, String) }, 'values'],
    ['an enum beyond its own limit', { enum: list(10_001, String) }, 'values in an enum'],
    ['40,000 properties', { properties: named(40_000) }, 'values'],
    ['3,000 branches', { oneOf: list(3000, () => ({ type: 'object' })) }, 'branches'],
    ['380,000 required names', { required: list(380_000, (i) => `n${i}`) }, 'values'],
    ['a pattern of 5,000 characters', { pattern: 'a'.repeat(5000) }, 'characters in a pattern'],
    ['nesting', nested(SCHEMA_LIMITS.depth), 'levels'],
  ])('refuses %s, naming the field and the limit', (_title, schema, what) => {
    const refused = refusalOf(() =>
      new SchemaBudget().charge(schema, 'tools[3].function.parameters'),
    )
    expect(refused?.param).toMatch(/^tools\[3\]\.function\.parameters/)
    expect(refused?.message).toContain(what)
  })

  it('covers all of its schemas together', () => {
    const budget = new SchemaBudget()
    const charge = (): void => budget.charge({ properties: named(10_000) }, 'tools[0]')
    expect(refusalOf(charge)).toBeUndefined()
    expect(refusalOf(charge)).toBeUndefined()
    expect(refusalOf(charge)?.message).toContain('values')
  })

  it.each<[string, unknown[]]>([
    ['128 tools of 24 properties', list(128, () => ({ type: 'object', properties: named(24) }))],
    ['an enum of 5,000 values', [{ enum: list(5000, String) }]],
  ])('admits %s', (_title, schemas) => {
    const budget = new SchemaBudget()
    for (const schema of schemas) budget.charge(schema, 'tools')
  })
})

describe('JSON text inside a string', () => {
  it.each<[string, string]>([
    ['900,000 numbers', `{"a":[${'1,'.repeat(900_000)}1]}`],
    ['deep nesting', '['.repeat(JSON_TEXT_LIMITS.depth + 1)],
    ['20,000 members', `{${list(20_000, (i) => `"m${i}":1`).join(',')}}`],
  ])('is refused with %s', (_title, text) => {
    const refused = refusalOf(() =>
      checkJsonText(text, 'messages[1].tool_calls[0].function.arguments'),
    )
    expect(refused?.param).toBe('messages[1].tool_calls[0].function.arguments')
  })

  it.each<[string, object]>([
    ['members', named(20_000)],
    ['values', { list: list(30_000, () => 1) }],
    ['nesting', { deep: nested(JSON_TEXT_LIMITS.depth) as object }],
  ])('is refused where the Messages dialect writes it as an object: %s', (_title, input) => {
    const call = { type: 'tool_use', id: 'call_1', name: 'add', input } as const
    const result = { type: 'tool_result', tool_use_id: 'call_1' } as const
    const refused = refusalOf(() =>
      conversationOf(
        [
          { role: 'user', content: 'Hi' },
          { role: 'assistant', content: [call] },
          { role: 'user', content: [result] },
        ],
        undefined,
        new RequestImages(),
      ),
    )
    expect(refused?.param).toBe('messages.1.content')
  })

  it('passes as ordinary arguments', () => {
    checkJsonText('{"city":"Oslo","days":[1,2,3]}', 'arguments')
  })
})
