import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { decodeTokens } from '#workers/text/detokenizer.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

// Recorded from the package tokenizers by make-tokenizer-parts.py (see `source` inside).
interface Golden {
  readonly texts: readonly string[]
  readonly words: readonly string[]
  readonly steps: Readonly<
    Record<
      string,
      {
        readonly normalizer: object | null
        readonly pre_tokenizer: object
        readonly ids: readonly (readonly number[])[]
      }
    >
  >
  readonly decoderWords: readonly string[]
  readonly decodedIds: readonly (readonly number[])[]
  readonly decoders: Readonly<
    Record<string, { readonly decoder: object; readonly texts: readonly string[] }>
  >
  readonly unknown: { readonly text: string; readonly ids: readonly number[] }
}

const golden = JSON.parse(
  readFileSync(join(import.meta.dirname, 'tokenizer-parts.json'), 'utf8'),
) as Golden

const idsOf = (words: readonly string[]) => Object.fromEntries(words.map((word, id) => [word, id]))

describe.each(Object.entries(golden.steps))('a tokenizer with %s', (_name, { ids, ...steps }) => {
  const model = {
    type: 'WordPiece',
    unk_token: '[UNK]',
    continuing_subword_prefix: '##',
    max_input_chars_per_word: 100,
    vocab: idsOf(golden.words),
  }
  const tokenizer = createTokenizer({ ...steps, model }, {})

  it.each(golden.texts.map((text, index) => [JSON.stringify(text), text, index] as const))(
    'reads %s as the reference does',
    (_title, text, index) => {
      expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids[index])
    },
  )
})

const wordLevel = {
  type: 'WordLevel',
  unk_token: '<unk>',
  vocab: idsOf(golden.decoderWords),
}

describe.each(Object.entries(golden.decoders))('the decoder %s', (_name, { decoder, texts }) => {
  const { pieces } = createTokenizer({ decoder, model: wordLevel }, {})

  it.each(golden.decodedIds.map((ids, index) => [ids, texts[index]] as const))(
    'spells %j as the reference does',
    (ids, text) => {
      expect(decodeTokens(pieces, ids)).toBe(text)
    },
  )
})

describe('a vocabulary of words', () => {
  it('gives unknown words the unknown id, even if control tokens are plain text', async () => {
    const { text, ids } = golden.unknown
    const steps = { pre_tokenizer: { type: 'WhitespaceSplit' }, decoder: null }
    const tokenizer = createTokenizer({ ...steps, model: wordLevel }, {})
    expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids)
    expect(await tokenizer.encodeCooperatively(text, { addSpecialTokens: false })).toEqual(ids)
  })
})
