import { describe, expect, it } from 'vitest'

import { cutWindow } from '#workers/audio/segments.ts'
import { timestampRules } from '#workers/audio/token-rules.ts'
import { compressionRatioOf } from '#workers/audio/window-answer.ts'

const FIRST = 100
const TIMES = { firstTimestamp: FIRST, secondsPerTimestamp: 0.02, windowSeconds: 30 }
const at = (seconds: number) => FIRST + Math.round(seconds * 50)

describe('cutting a window', () => {
  it.each([
    ['one finished segment', [at(1), 5, 6, at(3)], [[1, 3]], 30],
    [
      'two segments and no more',
      [at(0), 5, at(2), at(2), 6, at(5)],
      [
        [0, 2],
        [2, 5],
      ],
      30,
    ],
    ['speech cut off by the window', [at(0), 5, at(20), at(21), 6, 7], [[0, 20]], 20],
    ['two ends in a row', [at(0), 5, at(12), at(12)], [[0, 12]], 12],
    ['an open segment', [at(4), 5, 6], [[4, 30]], 30],
    ['no timestamps at all', [5, 6], [[0, 30]], 30],
    ['nothing but timestamps', [at(0), at(30)], [], 30],
    ['stamps that stand still', [at(0), 5, at(0), at(0), 6], [], 1],
    ['nothing', [], [], 30],
  ])('%s', (_name, answer, spans, advance) => {
    const cut = cutWindow(answer, TIMES)
    expect(cut.segments.map(({ start, end }) => [start, end])).toEqual(spans)
    expect(cut.advanceSeconds).toBe(advance)
  })

  it('never ends a segment after the sound', () => {
    const cut = cutWindow([at(0), 5, at(28)], { ...TIMES, windowSeconds: 2.5 })
    expect(cut.segments[0]).toMatchObject({ start: 0, end: 2.5 })
  })
})

describe('timestamp rules', () => {
  const END = 90
  const rules = timestampRules({ firstTimestamp: FIRST, endOfText: END, noTimestamps: 99 }, 50)
  const allowed = (answer: readonly number[], likely: readonly number[] = []) => {
    const logits = new Float32Array(FIRST + 101).fill(-5)
    for (const id of likely) logits[id] = 20
    for (const rule of rules) rule(logits, answer)
    return [...logits.keys()].filter((id) => logits[id] !== -Infinity)
  }

  it.each([
    ['begin with a timestamp of the first second', [], [], FIRST, FIRST + 50],
    ['go on with text after a first timestamp', [at(0)], [7], 0, 98],
    ['end a segment later than it began', [at(1), 5], [at(1), at(1.5)], at(1) + 1, at(2)],
    ['open the next segment where the last one ended', [at(0), 5, at(1)], [at(1)], at(1), at(2)],
    ['never write three in a row', [at(0), 5, at(1), at(1)], [7], 0, 98],
  ])('%s', (_name, answer, likely, lowest, highest) => {
    const found = allowed(answer, likely)
    expect([found[0], found.at(-1)]).toEqual([lowest, highest])
  })

  it('choose a timestamp if all timestamps together are likelier than any word', () => {
    expect(allowed([at(0), 5]).every((id) => id > FIRST)).toBe(true)
    expect(allowed([at(0), 5], [7])).toContain(7)
  })
})

it('notices repetitions by how well they compress', () => {
  expect(compressionRatioOf('the same again and again. '.repeat(20))).toBeGreaterThan(2.4)
  expect(compressionRatioOf('My mother sees the clock in the city.')).toBeLessThan(2.4)
})
