import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { findMarkers } from '#workers/embedding/markers.ts'
import { PARTS_MAX, readTextCut, readTextSplit } from '#workers/embedding/read-input.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

const FOLDER = join(import.meta.dirname, '../../../../models/tiny-embed')
const [tokenizerJson, tokenizerConfig] = ['tokenizer.json', 'tokenizer_config.json'].map((name) =>
  JSON.parse(readFileSync(join(FOLDER, name), 'utf8')),
)
const tokenizer = createTokenizer(tokenizerJson, tokenizerConfig)
const markers = findMarkers(tokenizer)
const reader = { tokenizer, markers, contextLength: 4096 }

const SENTENCE = 'Über den Fluss führt eine Brücke; the quick brown fox, 1984, jumps over it. '
const BLANKS = ' '.repeat(40)
// Letters of it are known, the word of 120 is not; 16384 characters end inside it.
const EDGE = `${'dog     '.repeat(2041)}${'q7'.repeat(60)}${' dog'.repeat(1000)}`

const LONG_WORD_FIRST = [...EDGE].toReversed().join('')

describe('a text that is cut', () => {
  it.each([
    ['a short one', SENTENCE.repeat(2), 4096],
    ['a short one to a few tokens', SENTENCE, 7],
    ['a long one to a few tokens', SENTENCE.repeat(1000), 7],
    ['a long one to all that fits', SENTENCE.repeat(1000), 4096],
    ['one that ends just behind the beginning', SENTENCE.repeat(216), 4000],
    ['one of many characters a token', `${BLANKS}dog`.repeat(6000), 4096],
    ['words that are one unknown token each', `${'q'.repeat(101)} dog `.repeat(4000), 4096],
    ['words of 99 letters', `${'7x'.repeat(49)}7 `.repeat(500), 4096],
    ['a word on the edge of what is encoded first', EDGE, 2063],
    ['a word on the edge from the other side', LONG_WORD_FIRST, 2063],
    ['emoji and ideographs', '😀 漢字かな交じり文 '.repeat(3000), 300],
    [
      'one to its markers alone',
      SENTENCE.repeat(1000),
      markers.before.length + markers.after.length,
    ],
  ])('has the first or the last tokens of the whole: %s', async (_title, text, tokensMax) => {
    const whole = tokenizer.encode(text, { addSpecialTokens: false })
    const { before, after } = markers
    const room = tokensMax - before.length - after.length
    const first = await readTextCut(reader, text, tokensMax)
    expect(first).toEqual([...before, ...whole.slice(0, room), ...after])
    const last = await readTextCut(reader, text, tokensMax, 'left')
    expect(last).toEqual([...before, ...whole.slice(Math.max(whole.length - room, 0)), ...after])
  })

  it('is read only as far as its tokens could reach, however long it is', async () => {
    let charsRead = 0
    const counting = {
      ...tokenizer,
      encode: (text: string, options: { addSpecialTokens: boolean }) => {
        charsRead += text.length
        return tokenizer.encode(text, options)
      },
    }
    const unreadable = { ...reader, tokenizer: counting }
    const cut = await readTextCut(unreadable, ' '.repeat(4_000_000), 16)
    expect(cut).toEqual([...markers.before, ...markers.after])
    expect(charsRead).toBe(16_384)
    charsRead = 0
    expect(await readTextCut(unreadable, SENTENCE.repeat(50_000), 256)).toHaveLength(256)
    expect(charsRead).toBe(16_384)
  })
})

describe('a text that is split', () => {
  it.each([
    ['nothing', ''],
    ['a short one', SENTENCE],
    ['a long one', SENTENCE.repeat(1000)],
    ['one without spaces', '漢字'.repeat(20_000)],
    ['one of emoji and ideographs', '😀 漢字かな交じり文 '.repeat(3000)],
  ])('has all tokens of the whole: %s', async (_title, text) => {
    const whole = tokenizer.encode(text, { addSpecialTokens: false })
    const { before, after } = markers
    const parts = await readTextSplit({ ...reader, contextLength: 64 }, text)
    expect(parts.flatMap((part) => part.slice(before.length, -after.length))).toEqual(whole)
  })

  it('is read in slices, and only until it has too many parts', async () => {
    const lengths: number[] = []
    const counting = {
      ...tokenizer,
      encode: (text: string, options: { addSpecialTokens: boolean }) => {
        lengths.push(text.length)
        return tokenizer.encode(text, options)
      },
    }
    const split = readTextSplit(
      { ...reader, tokenizer: counting, contextLength: 16 },
      SENTENCE.repeat(50_000),
    )
    await expect(split).rejects.toMatchObject({ code: 'context_length_exceeded' })
    expect(Math.max(...lengths)).toBeLessThanOrEqual(16_384)
    // A token of this text has two characters at least.
    expect(lengths.reduce((sum, length) => sum + length)).toBeLessThan(16 * PARTS_MAX * 6)
  })
})
