import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { SEED } from '#test/support/random.ts'
import { decodeTokens, IncrementalDetokenizer } from '#workers/text/detokenizer.ts'
import { loadTextModel } from '#workers/text/text-model.ts'
import { createTokenizer, encodeWithin } from '#workers/text/tokenizer.ts'

import {
  CONFIG,
  fixtureFolder,
  fixtureTokenizer,
  SENTENCE_PIECE,
  TOKENIZERS,
  WORD_PIECE,
} from './model-folders.ts'

describe('the tokenizer', () => {
  it('returns the token ids that the reference recorded beside the model', () => {
    const path = join(fixtureFolder('llama'), 'golden.json')
    const golden = JSON.parse(readFileSync(path, 'utf8')) as {
      tokenizer: { text: string; ids: number[] }[]
    }
    const tokenizer = fixtureTokenizer('llama')
    for (const { text, ids } of golden.tokenizer) {
      expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids)
    }
  })

  it('finds the end tokens and the start of a document in the model folder', async () => {
    const model = await loadTextModel(fixtureFolder('llama'), systemClock)
    expect([...model.endTokenIds]).toEqual([2])
    expect(model.documentStartTokenId).toBe(0)
    expect(model.chatTemplate).toBeDefined()
  })
})

describe.each(TOKENIZERS)('incremental detokenization of $name', ({ json, config }) => {
  const tokenizer = createTokenizer(json, config)
  const library = new LibraryTokenizer(json, config)
  const anyTokenId = fc.integer({ min: 0, max: tokenizer.pieces.size - 1 })

  it('adds up to the text of all tokens at once, for any tokens', () => {
    fc.assert(
      fc.property(fc.array(anyTokenId, { minLength: 1, maxLength: 30 }), (tokenIds) => {
        const visible = tokenIds.filter((tokenId) => !tokenizer.pieces.isSpecial(tokenId))
        fc.pre(visible.length > 0)
        const detokenizer = new IncrementalDetokenizer(tokenizer.pieces, { continuesText: false })
        const joined = tokenIds.map((id) => detokenizer.push(id)).join('') + detokenizer.flush()
        expect(joined).toBe(library.decode(tokenIds, { skip_special_tokens: true }))
      }),
      { seed: SEED, numRuns: 300 },
    )
  })
})

describe('incremental detokenization', () => {
  const { pieces, encode } = fixtureTokenizer('llama')

  it('never shows a part of a character', () => {
    const text = 'naïve 🙂 日本 e\u0301'
    const tokenIds = encode(text, { addSpecialTokens: false })
    const detokenizer = new IncrementalDetokenizer(pieces, { continuesText: true })
    const parts = tokenIds.map((tokenId) => detokenizer.push(tokenId))
    expect(parts.join('')).toBe(text)
    expect(parts.some((part) => part.includes('\ufffd'))).toBe(false)
    expect(parts.filter((part) => part === '').length).toBeGreaterThan(0)
  })

  it('ends an unfinished character with a replacement character', () => {
    const [first] = encode('🙂', { addSpecialTokens: false })
    expect(decodeTokens(pieces, [first as number])).toBe('\ufffd')
  })

  it('keeps the space of a word that continues a text and drops it at a beginning', () => {
    const { pieces: own } = createTokenizer(SENTENCE_PIECE, CONFIG)
    expect(decodeTokens(own, [7, 7], { continuesText: true })).toBe(' ab ab')
    expect(decodeTokens(own, [7, 7], { continuesText: false })).toBe('ab ab')
  })

  it('omits special tokens and ids that the tokenizer does not know', () => {
    expect(decodeTokens(pieces, [1, 2, 999_999])).toBe('')
  })

  it('refuses a decoder type that it does not know', () => {
    const odd = { ...WORD_PIECE, decoder: { type: 'Runes' } }
    expect(() => createTokenizer(odd, CONFIG)).toThrow(/Runes/)
  })
})

describe('encoding a text of any size', () => {
  const tokenizer = fixtureTokenizer('llama')
  const options = { addSpecialTokens: false, tokensMax: 256 }

  it('equals plain encoding if the text fits', async () => {
    const text = 'The quick brown fox. '.repeat(6)
    expect(await encodeWithin(tokenizer, text, options)).toEqual({
      fits: true,
      tokenIds: tokenizer.encode(text, options),
    })
  })

  it('counts exactly a text that is slightly too long', async () => {
    const text = 'fox '.repeat(300)
    const exact = tokenizer.encode(text, options).length
    expect(await encodeWithin(tokenizer, text, options)).toEqual({
      fits: false,
      estimatedTokens: exact,
    })
  })

  it('estimates one word of ten million letters from its beginning', async () => {
    let encoded = 0
    const counting = {
      ...tokenizer,
      encode: (text: string, how: { addSpecialTokens: boolean }) => {
        encoded += text.length
        return tokenizer.encode(text, how)
      },
    }
    const outcome = await encodeWithin(counting, 'x'.repeat(10_000_000), options)
    expect(outcome).toEqual({ fits: false, estimatedTokens: expect.closeTo(10_000_000, -6) })
    expect(encoded).toBeLessThan(100_000)
  })
})
