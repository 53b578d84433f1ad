import { setTimeout as sleep } from 'node:timers/promises'

import type { Clock } from '#shared/clock.ts'

/**
 * Makes answers for unknown addresses take as long as answers for known ones: real work is timed,
 * and where there is nothing to do the time of some recent real work is waited out.
 */
export interface Pace {
  /** Does the work and remembers how long it took and whether it failed. */
  run<T>(purpose: string, work: () => Promise<T>): Promise<T>
  /** Takes as long as the work did lately, and fails as it did last. */
  imitate(purpose: string): Promise<void>
}

const SAMPLES_MAX = 64
// A dead mail server is dead for everybody, as long as nobody has seen it alive again.
const FAILURE_LIFETIME_MS = 30_000
const WAIT_MS_MAX = 10_000

interface Memory {
  readonly durationsMs: number[]
  next: number
  failure: { readonly error: unknown; readonly atMs: number } | undefined
}

/** A pace without memories. */
export function createPace(clock: Clock): Pace {
  const memories = new Map<string, Memory>()
  const memoryOf = (purpose: string): Memory => {
    const known = memories.get(purpose)
    if (known !== undefined) return known
    const memory: Memory = { durationsMs: [], next: 0, failure: undefined }
    memories.set(purpose, memory)
    return memory
  }
  return {
    async run(purpose, work) {
      const memory = memoryOf(purpose)
      const startMs = clock.monotonic()
      try {
        const result = await work()
        memory.failure = undefined
        return result
      } catch (error) {
        memory.failure = { error, atMs: clock.monotonic() }
        throw error
      } finally {
        memory.durationsMs[memory.next] = clock.monotonic() - startMs
        memory.next = (memory.next + 1) % SAMPLES_MAX
      }
    },
    async imitate(purpose) {
      const { durationsMs, failure } = memoryOf(purpose)
      const sample = durationsMs[Math.floor(Math.random() * durationsMs.length)] ?? 0
      if (sample > 0) await sleep(Math.min(WAIT_MS_MAX, sample))
      if (failure !== undefined && clock.monotonic() - failure.atMs < FAILURE_LIFETIME_MS) {
        throw failure.error
      }
    },
  }
}
