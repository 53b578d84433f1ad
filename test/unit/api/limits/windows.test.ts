import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import {
  limitHeaders,
  limitState,
  remainingOf,
  resetMs,
  usedOf,
  waitMs,
} from '#api/limits/windows.ts'
import { SEED } from '#test/support/random.ts'

// limit, previous, current, elapsed, wanted → used, wait (undefined: never)
const CASES: readonly [number[], { used: number; wait: number | undefined; reset: number }][] = [
  [[10, 0, 0, 0, 1], { used: 0, wait: 0, reset: 0 }],
  [[10, 10, 0, 0, 1], { used: 10, wait: 6000, reset: 60_000 }],
  [[10, 10, 0, 30_000, 1], { used: 5, wait: 0, reset: 30_000 }],
  [[10, 10, 5, 30_000, 5], { used: 10, wait: 30_000, reset: 90_000 }],
  [[10, 0, 10, 45_000, 1], { used: 10, wait: 21_000, reset: 75_000 }],
  [[10, 0, 0, 0, 11], { used: 0, wait: undefined, reset: 0 }],
  // The last millisecond of a minute, the limit to the one, and a use beyond it.
  [[10, 10, 9, 59_999, 1], { used: 9, wait: 0, reset: 60_001 }],
  [[10, 10, 10, 59_999, 1], { used: 10, wait: 6001, reset: 60_001 }],
  [[10, 9, 0, 0, 1], { used: 9, wait: 0, reset: 60_000 }],
]

describe('a sliding window', () => {
  it.each(CASES)('%j holds %j', ([limit, previous, current, elapsed, wanted], expected) => {
    const window = { limit, previous, current } as Parameters<typeof usedOf>[0]
    expect(usedOf(window, elapsed as number)).toBe(expected.used)
    const wait = waitMs(window, wanted as number, elapsed as number)
    expect(wait === undefined ? wait : Math.round(wait)).toBe(expected.wait)
    expect(resetMs(window, elapsed as number)).toBe(expected.reset)
    expect(remainingOf(window, elapsed as number)).toBe((limit as number) - expected.used)
  })

  it('has room when the wait is over, and no wait if there is room', () => {
    const count = fc.integer({ min: 0, max: 50 })
    const cases = fc.tuple(fc.integer({ min: 1, max: 50 }), count, count, fc.nat({ max: 59_999 }))
    void fc.assert(
      fc.property(cases, ([limit, previous, current, elapsed]) => {
        const wait = waitMs({ limit, previous, current }, 1, elapsed)
        const fits = (atMs: number): boolean => {
          const isNext = atMs >= 60_000
          const window = {
            limit,
            previous: isNext ? current : previous,
            current: isNext ? 0 : current,
          }
          return usedOf(window, isNext ? atMs - 60_000 : atMs) + 1 <= limit
        }
        expect(wait).toBeDefined()
        const at = elapsed + (wait as number)
        expect(fits(Math.ceil(at) + 1)).toBe(true)
        expect(wait === 0).toBe(fits(elapsed))
      }),
      { seed: SEED },
    )
  })

  it('names the tighter of two windows in Go durations, and nothing without a limit', () => {
    const wide = { limit: 100, previous: 0, current: 1 }
    const tight = { limit: 3, previous: 0, current: 2 }
    const state = limitState('requests', [wide, tight], 33_640)
    expect(state && limitHeaders(state, 0)).toEqual({
      'x-ratelimit-limit-requests': '3',
      'x-ratelimit-remaining-requests': '1',
      'x-ratelimit-reset-requests': '1m26.36s',
    })
    expect(limitState('tokens', [{ ...wide, limit: 0 }], 0)).toBeUndefined()
  })
})
