import { describe, expect, it } from 'vitest'

import { philox4x32, uniformAt } from '#workers/sampling/counter-random.ts'

describe('the counter-based random numbers', () => {
  // Known answers of philox 4x32-10 from the kat_vectors file of the Random123 distribution.
  it.each([
    [
      [0, 0, 0, 0],
      [0, 0],
      [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
    ],
    [
      [0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff],
      [0xffffffff, 0xffffffff],
      [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    ],
    [
      [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
      [0xa4093822, 0x299f31d0],
      [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    ],
  ] as const)('give the published answer for %j', (counter, key, expected) => {
    expect(philox4x32(counter, key)).toEqual(expected)
  })

  it('are a function of seed, candidate and position, and change with each', () => {
    const base = uniformAt(7, 1, 2)
    expect(uniformAt(7, 1, 2)).toBe(base)
    const others = [uniformAt(8, 1, 2), uniformAt(7, 2, 2), uniformAt(7, 1, 3), uniformAt(-7, 1, 2)]
    expect(new Set([base, ...others]).size).toBe(5)
  })

  it('have the 53 leading bits of two words, as numpy makes them', () => {
    // ((0x6627e8d5 >> 5) * 2**26 + (0xe169c58d >> 6)) / 2**53, of the first answer above.
    expect(uniformAt(0, 0, 0)).toBe(0.39904647231489565)
  })

  it('distinguish seeds that differ only above 32 bits', () => {
    expect(uniformAt(1, 0, 0)).not.toBe(uniformAt(1 + 2 ** 32, 0, 0))
  })

  it('fill the unit interval evenly', () => {
    const draws = Array.from({ length: 10_000 }, (_, position) => uniformAt(42, 0, position))
    const tenths = Array.from({ length: 10 }, (_, k) =>
      draws.filter((u) => Math.floor(u * 10) === k),
    )
    for (const tenth of tenths) expect(Math.abs(tenth.length - 1000)).toBeLessThan(150)
  })
})
