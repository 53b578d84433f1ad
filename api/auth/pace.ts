import { setTimeout as sleep } from 'node:timers/promises'

import type { Clock } from '#shared/clock.ts'
import { ServiceError } from '#shared/errors.ts'

/**
 * Makes answers for unknown addresses take as long as answers for known ones. Both leave at
 * max(w, t): t is what nine of ten recent pieces of real work stayed below; w is the duration of the
 * work itself, and for an imitation that of some recent work drawn at random. So both have one
 * distribution, and the same timer lets nearly all of them go.
 */
export interface Pace {
  /** Does the work, remembers how long it took and whether it failed, and answers in pace. */
  run<T>(purpose: string, work: () => Promise<T>): Promise<T>
  /** Takes as long as the work does, and fails as it did last; `instead` is done meanwhile. */
  imitate(purpose: string, instead?: () => Promise<void>): Promise<void>
}

const SAMPLES_MAX = 64
// An hour of trouble must not slow down the whole day after it.
const SAMPLE_LIFETIME_MS = 600_000
const QUANTILE = 0.9
// A mail server that failed is assumed to fail for all requests until one succeeds.
const FAILURE_LIFETIME_MS = 30_000
const WAIT_MS_MAX = 10_000
// Before any work was seen both kinds of answers leave at a moment that most mail servers keep to.
const FIRST_MS = 750

interface Sample {
  readonly durationMs: number
  readonly atMs: number
}

interface Memory {
  samples: Sample[]
  failure: { readonly error: unknown; readonly atMs: number } | undefined
}

/** A pace without memories. */
export function createPace(clock: Clock): Pace {
  const memories = new Map<string, Memory>()
  const memoryOf = (purpose: string): Memory => {
    const known = memories.get(purpose)
    if (known !== undefined) return known
    const memory: Memory = { samples: [], failure: undefined }
    memories.set(purpose, memory)
    return memory
  }
  const waitUntil = async (startMs: number, durationMs: number): Promise<void> => {
    const endMs = startMs + Math.min(WAIT_MS_MAX, durationMs)
    // Timers count whole milliseconds and may ring a little early.
    for (let left = endMs - clock.monotonic(); left > 0; left = endMs - clock.monotonic()) {
      await sleep(Math.ceil(left))
    }
  }
  return {
    async run(purpose, work) {
      const memory = memoryOf(purpose)
      const startMs = clock.monotonic()
      const remember = (failure: Memory['failure']): void => {
        const atMs = clock.monotonic()
        memory.failure = failure
        memory.samples = [...memory.samples, { durationMs: atMs - startMs, atMs }].slice(
          -SAMPLES_MAX,
        )
      }
      const targetMs = quantileOf(recentOf(memory, startMs))
      try {
        const result = await work()
        remember(undefined)
        return result
      } catch (error) {
        // A refusal that concerns one client says nothing about other clients.
        if (!isRefusal(error)) remember({ error, atMs: clock.monotonic() })
        throw error
      } finally {
        await waitUntil(startMs, targetMs)
      }
    },
    async imitate(purpose, instead) {
      const memory = memoryOf(purpose)
      const startMs = clock.monotonic()
      const recent = recentOf(memory, startMs)
      const drawn = recent[Math.floor(Math.random() * recent.length)]?.durationMs ?? 0
      const { failure } = memory
      try {
        await instead?.()
      } finally {
        await waitUntil(startMs, Math.max(drawn, quantileOf(recent)))
      }
      if (failure !== undefined && startMs - failure.atMs < FAILURE_LIFETIME_MS) {
        throw failure.error
      }
    },
  }
}

// When there was no work lately, the last one is better than nothing.
function recentOf({ samples }: Memory, nowMs: number): readonly Sample[] {
  const recent = samples.filter((sample) => nowMs - sample.atMs < SAMPLE_LIFETIME_MS)
  return recent.length > 0 ? recent : samples.slice(-1)
}

function quantileOf(samples: readonly Sample[]): number {
  const sorted = samples.map((sample) => sample.durationMs).sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length * QUANTILE)] ?? FIRST_MS
}

function isRefusal(error: unknown): boolean {
  return error instanceof ServiceError && error.status < 500
}
