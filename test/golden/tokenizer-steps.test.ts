import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { createTokenizer } from '#workers/text/tokenizer.ts'

// Recorded from the package tokenizers by make-tokenizer-steps.py (see `source` inside).
interface Golden {
  readonly texts: readonly string[]
  readonly words: readonly string[]
  readonly cases: Readonly<
    Record<
      string,
      {
        readonly normalizer: object | null
        readonly pre_tokenizer: object
        readonly ids: readonly (readonly number[])[]
      }
    >
  >
}

const { texts, words, cases } = JSON.parse(
  readFileSync(join(import.meta.dirname, 'tokenizer-steps.json'), 'utf8'),
) as Golden
const model = {
  type: 'WordPiece',
  unk_token: '[UNK]',
  continuing_subword_prefix: '##',
  max_input_chars_per_word: 100,
  vocab: Object.fromEntries(words.map((word, id) => [word, id])),
}

describe.each(Object.entries(cases))('a tokenizer with %s', (_name, { ids, ...steps }) => {
  // Parts that are null may be left out of the file.
  const tokenizer = createTokenizer({ ...steps, model }, {})

  it.each(texts.map((text, index) => [JSON.stringify(text), index] as const))(
    'reads %s as the reference does',
    (_text, index) => {
      const read = tokenizer.encode(texts[index] as string, { addSpecialTokens: false })
      expect(read).toEqual(ids[index])
    },
  )
})

describe('a table of replacements', () => {
  it.each(['', 'AAAA', Buffer.from([9, 0, 0, 0, 1]).toString('base64')])(
    'that is damaged (%j) is refused',
    (charsmap) => {
      const normalizer = { type: 'Precompiled', precompiled_charsmap: charsmap }
      expect(() => createTokenizer({ normalizer, model }, {})).toThrow('precompiled_charsmap')
    },
  )
})

// As tokenizers 0.23.3 reads them with the same file.
describe('unknown characters in a row', () => {
  const vocab = [
    ['<unk>', 0],
    ['▁', -1],
    ['a', -2],
    ['b', -2],
  ] as const
  const unigram = createTokenizer(
    {
      pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always' },
      model: { type: 'Unigram', unk_id: 0, vocab, byte_fallback: false },
    },
    {},
  )

  it.each([
    ['aøøb', [1, 2, 0, 3]],
    ['øø øø', [1, 0, 1, 0]],
    [`a${'ø'.repeat(50_000)}b`, [1, 2, 0, 3]],
  ])('are one token of a word: %#', (text, expected) => {
    expect(unigram.encode(text, { addSpecialTokens: false })).toEqual(expected)
  })
})
