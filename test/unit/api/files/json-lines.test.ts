import { describe, expect, it } from 'vitest'

import { JsonLinesCheck } from '#api/files/json-lines.ts'
import { parseRange } from '#api/http/byte-range.ts'

function check(text: string, purpose: string, chunkBytes = 7) {
  const lines = new JsonLinesCheck(undefined)
  const bytes = Buffer.from(text)
  for (let start = 0; start < bytes.length; start += chunkBytes)
    lines.push(bytes.subarray(start, start + chunkBytes))
  return lines.finish(purpose)?.message
}

const BATCH_LINE = '{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}}'

describe('the check of JSON lines', () => {
  it.each([
    ['search', '{"text":"a"}\n{"text":"b","metadata":{"x":1}}\n'],
    ['search', '{"text":"ä"}\r\n\r\n{"text":"b"}'],
    ['search', '\ufeff{"text":"a"}\n'],
    ['classifications', '{"text":"a","label":"b"}'],
    ['fine-tune', '{"prompt":"a","completion":""}\n{"messages":[]}'],
    ['batch', BATCH_LINE],
    ['user_data', 'anything at all'],
    ['user_data', ''],
  ])('accepts for %s: %j', (purpose, text) => {
    expect(check(text, purpose)).toBeUndefined()
  })

  it.each([
    ['search', '', 'The file is empty'],
    ['search', '\n \r\n\n', 'The file is empty'],
    ['search', '{"text":"a"}\nnot json\n', 'Line 2 is not a dictionary'],
    ['search', '["text"]', 'Line 1 is not a dictionary'],
    [
      'search',
      '{"text":"a"}\n\n{"texts":"b"}',
      'text and (optional) metadata keys. Invalid format on line 3',
    ],
    [
      'classifications',
      '{"text":"a"}',
      'text/label and (optional) metadata keys. Invalid format on line 1',
    ],
    ['fine-tune', '{"prompt":"a"}', 'prompt/completion keys. Invalid format on line 1'],
    ['batch', `${BATCH_LINE}\n{"custom_id":"b"}`, 'Invalid format on line 2'],
  ])('names the first fault for %s: %j', (purpose, text, message) => {
    expect(check(text, purpose)).toContain(message)
    expect(check(text, purpose, 1)).toContain(message)
  })

  it.each([
    ['values', `[0${',0'.repeat(400_000)}]`],
    ['levels', `${'['.repeat(201)}${']'.repeat(201)}`],
  ])('refuses a line with too many %s before it parses it', (_what, metadata) => {
    const line = `{"text":"a","metadata":${metadata}}`
    for (const text of [line, `{"text":"b"}\n${line}\n{"text":"c"}\n`]) {
      const message = check(text, 'search', 2 ** 20)
      expect(message).toMatch(/^Line [12]: The JSON is too complex: at most/)
    }
  })

  it('refuses bytes that are not text', () => {
    const lines = new JsonLinesCheck('search')
    lines.push(Buffer.from('{"text":"a"}\n{"text":"\xff"}\n', 'latin1'))
    expect(lines.finish('search')?.message).toBe(
      'Expected file to be UTF-8 text, but line 2 is not.',
    )
  })
})

it.each([
  [undefined, undefined],
  ['bytes=0-', { start: 0, end: 9 }],
  ['bytes=2-4', { start: 2, end: 4 }],
  ['bytes=2-400', { start: 2, end: 9 }],
  ['bytes=-3', { start: 7, end: 9 }],
  ['bytes=-300', { start: 0, end: 9 }],
  ['bytes=10-', 'unsatisfiable'],
  ['bytes=10-12', 'unsatisfiable'],
  ['bytes=99999999999999999999-', 'unsatisfiable'],
  ['bytes=0-99999999999999999999', { start: 0, end: 9 }],
  ['bytes=-0', 'unsatisfiable'],
  ['Bytes=0-0', { start: 0, end: 0 }],
  ['bytes=4-2', undefined],
  ['bytes=-', undefined],
  ['bytes=0-1,3-4', undefined],
  ['items=0-1', undefined],
])('reads the range %j of ten bytes as %j', (header, expected) => {
  expect(parseRange(header, 10)).toEqual(expected)
})

it.each([
  ['bytes=0-', 'unsatisfiable'],
  ['bytes=-5', undefined],
])('reads the range %j of an empty file as %j', (header, expected) => {
  expect(parseRange(header, 0)).toEqual(expected)
})
