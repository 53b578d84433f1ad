import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { createTokenizer } from '#workers/text/tokenizer.ts'

import { CONFIG, fixtureFolder, readJson } from './model-folders.ts'

const json = readJson(join(fixtureFolder('llama'), 'tokenizer.json')) as {
  model: { vocab: Record<string, number>; merges: readonly unknown[] }
}
const model = (changes: object) => ({ ...json, model: { ...json.model, ...changes } })
const split = (pattern: string) => ({
  ...json,
  pre_tokenizer: { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated' },
})
const normalizer = (...normalizers: readonly object[]) => ({
  ...json,
  normalizer: { type: 'Sequence', normalizers },
})
const replace = (sought: string, content: string) => ({
  type: 'Replace',
  pattern: { String: sought },
  content,
})
const wordPiece = (vocab: object, limit: unknown) => ({
  model: { type: 'WordPiece', vocab, unk_token: 'a', max_input_chars_per_word: limit },
})

/** A table of SentencePiece that holds no key, and replacements. */
function charsmap(replacements: Buffer): string {
  const head = Buffer.alloc(8)
  head.writeUInt32LE(4)
  return Buffer.concat([head, replacements]).toString('base64')
}

describe('a tokenizer is refused at load', () => {
  it.each<[string, object, RegExp]>([
    ['with a pattern of cubic time', split('a*a*a*b'), /takes too long/],
    ['with a pattern of quadratic time', split('a+b'), /takes too long/],
    ['with one over white space', split(String.raw`\s*\s*\n$`), /takes too long/],
    ['with one over a letter of its own', split('q+z'), /takes too long/],
    ['with a lazy one', split('(?:x|y)+?z|x'), /exponential|takes too long/],
    [
      'with a normalizer of quadratic time',
      normalizer({ type: 'Replace', pattern: { Regex: 'w+;' }, content: '' }),
      /takes too long/,
    ],
    [
      'with normalizers that double a text again and again',
      normalizer(...Array.from({ length: 60 }, () => replace('q', 'qq'))),
      /too much time or memory/,
    ],
    [
      'with a normalizer that writes megabytes',
      normalizer(replace(' ', 'x'.repeat(1e6))),
      /too long/,
    ],
    [
      'with a table that writes megabytes',
      normalizer({ type: 'Precompiled', precompiled_charsmap: charsmap(Buffer.alloc(1e6, 'x')) }),
      /too long a replacement/,
    ],
    ['with words of any length', wordPiece({ a: 0 }, 1e9), /max_input_chars_per_word/],
    ['with words of a length that is not a number', wordPiece({ a: 0 }, 'NaN'), /max_input_chars/],
    ['with a token of megabytes', model({ vocab: { ['a'.repeat(1e6)]: 0 } }), /token too long/],
    [
      'with millions of tokens',
      model({ vocab: Array(1_000_001).fill(['a', 0]) }),
      /1000001 tokens/,
    ],
    ['with millions of merges', model({ merges: Array(1_000_001).fill('a b') }), /1000001 merges/],
    [
      'with hundreds of thousands of added tokens',
      { ...json, added_tokens: Array(100_001).fill({ id: 0, content: 'a' }) },
      /100001 added tokens/,
    ],
    ['with merges of nothing', model({ merges: ['a ', ' b'] }), /merges/],
    ['with merges of three', model({ merges: [['a', 'b', 'c']] }), /merges/],
    ['with merges that are numbers', model({ merges: [1, 2] }), /merges/],
    ['with merges of megabytes', model({ merges: [['a'.repeat(1e6), 'a']] }), /merges/],
    ['without merges', model({ merges: undefined }), /merges/],
    [
      'with a behavior of every object',
      { ...json, pre_tokenizer: { type: 'Punctuation', behavior: 'constructor' } },
      /is not known/,
    ],
  ])('%s', (_what, hostile, reason) => {
    expect(() => createTokenizer(hostile, CONFIG)).toThrow(reason)
  })
})

describe('merges that lead back to each other', () => {
  it('end, because every merge joins two parts', () => {
    const vocab = { ...json.model.vocab, aa: 400, aaa: 401, aaaa: 402 }
    const merges = [
      ['a', 'a'],
      ['aa', 'a'],
      ['a', 'aa'],
      ['aa', 'aa'],
      ['aaa', 'a'],
      ['a', 'a'],
    ]
    const tokenizer = createTokenizer(model({ vocab, merges }), CONFIG)
    const { length } = tokenizer.encode('a'.repeat(10_000), { addSpecialTokens: false })
    expect(length).toBeGreaterThan(1000)
  })
})

// From the tokenizer.json of published models.
const PUBLISHED: Readonly<Record<string, string>> = {
  'GPT-2': String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  'Llama 3': String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  'Qwen 2': String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  'gpt-oss': String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  'DeepSeek V3': String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_${'`'}{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
  Bloom: String.raw` ?[^(\s|[.,!?…。，、।۔،])]+`,
}

it.each(Object.entries(PUBLISHED))('the pattern of %s is accepted', (_name, pattern) => {
  expect(() => createTokenizer(split(pattern), CONFIG)).not.toThrow()
})
