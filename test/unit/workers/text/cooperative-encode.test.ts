import { join } from 'node:path'

import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import { SEED } from '#test/support/random.ts'
import { countTurns } from '#test/support/turns.ts'
import { createTokenizer, encodeWithin } from '#workers/text/tokenizer.ts'

import { CONFIG, fixtureFolder, fixtureTokenizer, readJson, TOKENIZERS } from './model-folders.ts'

const LLAMA = readJson(join(fixtureFolder('llama'), 'tokenizer.json'))
const LONG = 'The quick <|im_start|> brown fox,\n naïve 🙂  日本. '.repeat(4000)
const words = fc.constantFrom(
  'ab',
  'The',
  ' ',
  '  ',
  '\n',
  'é',
  '日本',
  '🙂',
  '\ud83d',
  "'s",
  '12',
  '…',
  '<s>',
  '</s>',
  '<|im_start|>',
  '[MASK]',
  '[UNK]',
  '~!',
  '\u00a0',
  '\t',
  '\u007f',
  ' x',
  '{"a": [1]}',
)
const anyText = fc
  .array(fc.oneof(words, fc.string({ unit: 'binary', maxLength: 4 })))
  .map((parts) => parts.join(''))

describe.each(TOKENIZERS)('encoding in turns with $name', ({ json, config }) => {
  const tokenizer = createTokenizer(json, config)

  it('finds the tokens that are found in one go, for any text', async () => {
    await fc.assert(
      fc.asyncProperty(anyText, fc.boolean(), async (text, addSpecialTokens) => {
        fc.pre(text !== '')
        const options = { addSpecialTokens }
        const expected = tokenizer.encode(text, options)
        expect(await tokenizer.encodeCooperatively(text, options)).toEqual(expected)
        // Nothing is left of it in the tokenizer.
        expect(tokenizer.encode(text, options)).toEqual(expected)
      }),
      { seed: SEED, numRuns: 300 },
    )
    const long = LONG.slice(0, 20_000)
    const whole = tokenizer.encode(long, { addSpecialTokens: true })
    expect(await tokenizer.encodeCooperatively(long, { addSpecialTokens: true })).toEqual(whole)
  })
})

describe('encoding a long text', () => {
  const tokenizer = fixtureTokenizer('llama')

  it('lets other work run between its words', async () => {
    const turns = countTurns()
    const options = { addSpecialTokens: false, tokensMax: 1_000_000 }
    const outcome = await encodeWithin(tokenizer, LONG, options)
    expect(turns.end()).toBeGreaterThan(10)
    expect(outcome).toEqual({ fits: true, tokenIds: tokenizer.encode(LONG, options) })
  })

  it('keeps several texts at once apart', async () => {
    const texts = ['fox '.repeat(9000), LONG, 'The brown '.repeat(5000)]
    const options = { addSpecialTokens: false }
    const found = await Promise.all(
      texts.map((text) => tokenizer.encodeCooperatively(text, options)),
    )
    expect(found).toEqual(texts.map((text) => tokenizer.encode(text, options)))
  })

  it('spells the bytes of words as the library does', () => {
    const library = new LibraryTokenizer(LLAMA as never, CONFIG)
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'aB 0!~é日🙂\n"{') }), (text) => {
        fc.pre(text !== '')
        const { ids } = library.encode(text, { add_special_tokens: false })
        expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids)
      }),
      { seed: SEED, numRuns: 500 },
    )
  })
})
