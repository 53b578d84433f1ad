import fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import { SEED } from '#test/support/random.ts'
import { StopStrings } from '#workers/text/detokenizer.ts'

function run(stops: readonly string[], parts: readonly string[]) {
  const watcher = new StopStrings(stops)
  const shown: string[] = []
  for (const part of parts) {
    const { text, isStopped } = watcher.push(part)
    shown.push(text)
    if (isStopped) return { shown, isStopped }
  }
  return { shown: [...shown, watcher.flush()], isStopped: false }
}

describe('stop strings', () => {
  it.each([
    { stops: [], parts: ['a', 'b'], shown: ['a', 'b', ''], isStopped: false },
    { stops: ['b'], parts: ['abc'], shown: ['a'], isStopped: true },
    { stops: ['END'], parts: ['xE', 'N', 'D'], shown: ['x', '', ''], isStopped: true },
    { stops: ['END'], parts: ['xE', 'N', 'X'], shown: ['x', '', 'ENX', ''], isStopped: false },
    { stops: ['aab'], parts: ['a', 'a', 'a', 'b'], shown: ['', '', 'a', ''], isStopped: true },
    { stops: ['\n\n', 'c'], parts: ['a\n', 'b\n', '\n'], shown: ['a', '\nb', ''], isStopped: true },
    { stops: ['xyz', 'y'], parts: ['x', 'y'], shown: ['', 'x'], isStopped: true },
    { stops: ['END'], parts: ['aEN'], shown: ['a', 'EN'], isStopped: false },
    { stops: ['abb', 'b'], parts: ['abb'], shown: ['a'], isStopped: true },
    { stops: [''], parts: ['a'], shown: ['a', ''], isStopped: false },
  ])('show $shown of $parts with $stops', ({ stops, parts, shown, isStopped }) => {
    expect(run(stops, parts)).toEqual({ shown, isStopped })
  })

  it('show the same text however it is cut into parts', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b', '\n'), minLength: 1, maxLength: 4 })
    fc.assert(
      fc.property(
        fc.array(letters, { minLength: 1, maxLength: 3 }),
        fc.array(letters),
        (stops, parts) => {
          const whole = parts.join('')
          // The stop string that is complete first ends the text; of two, the longer one.
          const ends = stops
            .map((stop) => ({ start: whole.indexOf(stop), end: whole.indexOf(stop) + stop.length }))
            .filter(({ start }) => start >= 0)
            .sort((a, b) => a.end - b.end || a.start - b.start)
          const expected = ends[0] === undefined ? whole : whole.slice(0, ends[0].start)
          expect(run(stops, [...whole]).shown.join('')).toBe(expected)
          expect(run(stops, parts).shown.join('')).toBe(expected)
        },
      ),
      { seed: SEED, numRuns: 1000 },
    )
  })
})
