import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { expect, it } from 'vitest'

import { cutWindow } from '#workers/audio/segments.ts'

// Recorded from transformers' long-form decoding by make-window-cuts.py.
interface Golden {
  readonly tokens: readonly number[]
  readonly spans: readonly (readonly [number, number])[]
  readonly advanceFrames: number
}

const FIRST = 100
const FRAMES_PER_SECOND = 100
const TIMES = { firstTimestamp: FIRST, secondsPerTimestamp: 0.02, windowSeconds: 30 }
/** A window is left behind by at least this, so that no answer is asked for twice. */
const ADVANCE_SECONDS_MIN = 1

const goldens = JSON.parse(
  readFileSync(join(import.meta.dirname, 'window-cuts.json'), 'utf8'),
) as readonly Golden[]
const isTimestamp = (id: number | undefined): boolean => id !== undefined && id >= FIRST
const hasPairs = ({ tokens }: Golden): boolean =>
  tokens.some((id, at) => isTimestamp(id) && isTimestamp(tokens[at - 1]))

it('continues at the position of the reference', () => {
  for (const golden of goldens) {
    const seconds = golden.advanceFrames / FRAMES_PER_SECOND
    const { advanceSeconds } = cutWindow(golden.tokens, TIMES)
    expect([golden.tokens, advanceSeconds]).toEqual([
      golden.tokens,
      expect.closeTo(Math.max(seconds, ADVANCE_SECONDS_MIN), 6),
    ])
  }
})

it('cuts an answer like the reference, and leaves out segments without a length', () => {
  const cut = goldens.filter(hasPairs)
  expect(cut.length).toBeGreaterThan(60)
  for (const { tokens, spans } of cut) {
    const found = cutWindow(tokens, TIMES).segments.map(({ start, end }) => [start, end])
    const real = spans.filter(([start, end]) => end > start)
    expect([tokens, found]).toEqual([
      tokens,
      real.map((span) => span.map((seconds) => expect.closeTo(seconds, 6))),
    ])
  }
})
