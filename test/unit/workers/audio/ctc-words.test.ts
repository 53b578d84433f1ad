import { expect, it } from 'vitest'

import { CtcReader, type CtcTokens } from '#workers/audio/ctc-words.ts'

const TEXTS = ['_', '|', '?', 'a', 'b', 'c']
const TOKENS: CtcTokens = {
  blank: 0,
  delimiter: 1,
  skipped: new Set([2]),
  texts: new Map(TEXTS.map((text, id) => [id, text])),
}

/** Reads frames that are written as the texts of their tokens, window by window. */
function read(windows: readonly string[], tokens = TOKENS) {
  const reader = new CtcReader(tokens)
  let frame = 0
  const words = windows.flatMap((window) => {
    const tokenIds = BigInt64Array.from(window, (text) => BigInt(TEXTS.indexOf(text)))
    const logprobs = Float32Array.from(window, (_text, index) => -1 - frame - index)
    frame += window.length
    return reader.push({ tokenIds, logprobs }, frame - window.length)
  })
  return [...words, ...reader.flush()]
}

const spans = (windows: readonly string[], tokens = TOKENS) =>
  read(windows, tokens).map(({ text, start, end }) => [text, start, end])

it.each([
  [
    'equal frames in a row are one token',
    ['_aa_ab__|c'],
    [
      ['aab', 1, 6],
      ['c', 9, 10],
    ],
  ],
  [
    'a word goes on in the next window',
    ['_ab', 'bc|', 'a'],
    [
      ['abc', 1, 5],
      ['a', 6, 7],
    ],
  ],
  [
    'special tokens count as not there',
    ['a?a|b?'],
    [
      ['a', 0, 3],
      ['b', 4, 5],
    ],
  ],
  [
    'delimiters in a row are one',
    ['|a||_|b|'],
    [
      ['a', 1, 2],
      ['b', 6, 7],
    ],
  ],
  ['nothing is said', ['__|', '?_'], []],
] as const)('%s', (_title, windows, expected) => {
  expect(spans(windows)).toEqual(expected)
})

it('makes every token a word if the vocabulary has no delimiter', () => {
  expect(spans(['aab_b'], { ...TOKENS, delimiter: undefined })).toEqual([
    ['a', 0, 2],
    ['b', 2, 3],
    ['b', 4, 5],
  ])
})

it('ends a word that would grow without bound', () => {
  const words = read(['ab'.repeat(300)])
  expect(words.map(({ text }) => text.length)).toEqual([256, 256, 88])
  expect(words.map(({ isSpaced }) => isSpaced)).toEqual([false, false, false])
})

it('gives each token the log-probability of its likeliest frame, and spaces theirs', () => {
  const [first, second] = read(['aa|_|bb'])
  expect(first).toMatchObject({ tokenIds: [3], logprobs: [{ token: 'a', logprob: -1 }] })
  expect(second).toMatchObject({
    tokenIds: [1, 4],
    logprobs: [
      { token: ' ', logprob: -3 },
      { token: 'b', logprob: -6 },
    ],
  })
})
