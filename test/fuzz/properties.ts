import fc, { type Arbitrary } from 'fast-check'
import { expect } from 'vitest'

import { ServiceError } from '#shared/errors.ts'
import { SEED } from '#test/support/random.ts'

/**
 * How often a property is tried: as FUZZ_RUNS says, else so that a run of everything stays short.
 */
export const RUNS = Number(process.env.FUZZ_RUNS ?? 200)
// Processor time of this thread, so that a busy machine causes no failure; input that backtracks
// takes minutes.
const CPU_MS_MAX = 1500

/** Tries a property; a failure names its seed, its path and the smallest case. */
export async function holds<T>(
  arbitrary: Arbitrary<T>,
  property: (value: T) => unknown,
  runs = RUNS,
): Promise<void> {
  const quick = fc.asyncProperty(arbitrary, async (value) => {
    const before = process.threadCpuUsage()
    await property(value)
    const { user, system } = process.threadCpuUsage(before)
    expect((user + system) / 1000).toBeLessThan(CPU_MS_MAX)
  })
  await fc.assert(quick, { seed: SEED, numRuns: runs })
}

/** Runs a parser on what it may refuse: undefined when it does so with an error for the client. */
export async function orRefusal<T>(parse: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await parse()
  } catch (error) {
    expect(error).toBeInstanceOf(ServiceError)
    expect((error as ServiceError).status).toBeLessThan(500)
    expect((error as ServiceError).message).not.toBe('')
    return undefined
  }
}

/** Bytes in pieces that are cut anywhere. */
export const pieces = (bytes: Arbitrary<Buffer>): Arbitrary<{ whole: Buffer; cut: Buffer[] }> =>
  fc.tuple(bytes, fc.array(fc.nat(), { maxLength: 8 })).map(([whole, places]) => {
    const ends = places.map((place) => place % (whole.length + 1)).toSorted((a, b) => a - b)
    return {
      whole,
      cut: [...ends, whole.length].map((end, at) => whole.subarray(ends[at - 1] ?? 0, end)),
    }
  })

/** A file with some of its bytes changed, moved, repeated or cut off. */
export function damaged(files: readonly Buffer[]): Arbitrary<Buffer> {
  // Lengths and counts are in the headers.
  const place = fc.oneof(fc.nat(64), fc.nat(64), fc.nat())
  const change = fc.record({
    at: place,
    kind: fc.constantFrom('set', 'set', 'set', 'cut', 'drop', 'repeat', 'extreme'),
    byte: fc.nat(255),
    count: fc.nat(64),
  })
  return fc
    .tuple(fc.constantFrom(...files), fc.array(change, { minLength: 1, maxLength: 10 }))
    .map(([file, changes]) =>
      changes.reduce((bytes: Buffer, { at: place, kind, byte, count }) => {
        const at = place % (bytes.length + 1)
        const [before, after] = [bytes.subarray(0, at), bytes.subarray(at)]
        if (kind === 'cut') return before
        if (kind === 'drop') return Buffer.concat([before, after.subarray(count)])
        if (kind === 'repeat') return Buffer.concat([before, after.subarray(0, count), after])
        const copy = Buffer.from(bytes)
        if (kind === 'extreme') copy.fill(byte > 127 ? 255 : 0, at, Math.min(at + 4, copy.length))
        else if (at < copy.length) copy[at] = byte
        return copy
      }, file),
    )
}
