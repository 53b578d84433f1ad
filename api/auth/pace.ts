import { setTimeout as sleep } from 'node:timers/promises'

import type { Clock } from '#shared/clock.ts'
import { ServiceError } from '#shared/errors.ts'

/**
 * Makes answers for unknown addresses take as long as answers for known ones: real work is timed,
 * and where there is nothing to do the time of some recent real work is waited out.
 */
export interface Pace {
  /** Does the work and remembers how long it took and whether it failed. */
  run<T>(purpose: string, work: () => Promise<T>): Promise<T>
  /** Takes as long as the work did lately, and fails as it did last; `instead` is done meanwhile. */
  imitate(purpose: string, instead?: () => Promise<void>): Promise<void>
}

const SAMPLES_MAX = 64
// A dead mail server is dead for everybody, as long as nobody has seen it alive again.
const FAILURE_LIFETIME_MS = 30_000
const WAIT_MS_MAX = 10_000
// A busy moment must not make the next imitations conspicuously short.
const DEBT_MS_MAX = 5

interface Memory {
  readonly durationsMs: number[]
  next: number
  /** By how much imitations took too long so far: timers never ring early. */
  debtMs: number
  failure: { readonly error: unknown; readonly atMs: number } | undefined
}

/** A pace without memories. */
export function createPace(clock: Clock): Pace {
  const memories = new Map<string, Memory>()
  const memoryOf = (purpose: string): Memory => {
    const known = memories.get(purpose)
    if (known !== undefined) return known
    const memory: Memory = { durationsMs: [], next: 0, debtMs: 0, failure: undefined }
    memories.set(purpose, memory)
    return memory
  }
  return {
    async run(purpose, work) {
      const memory = memoryOf(purpose)
      const startMs = clock.monotonic()
      const remember = (failure: Memory['failure']): void => {
        memory.failure = failure
        memory.durationsMs[memory.next] = clock.monotonic() - startMs
        memory.next = (memory.next + 1) % SAMPLES_MAX
      }
      try {
        const result = await work()
        remember(undefined)
        return result
      } catch (error) {
        // What one client is refused for says nothing about the next one.
        if (!isRefusal(error)) remember({ error, atMs: clock.monotonic() })
        throw error
      }
    },
    async imitate(purpose, instead) {
      const memory = memoryOf(purpose)
      const startMs = clock.monotonic()
      await instead?.()
      const { durationsMs, failure } = memory
      const targetMs = durationsMs[Math.floor(Math.random() * durationsMs.length)] ?? 0
      const waitMs = Math.min(WAIT_MS_MAX, targetMs - (clock.monotonic() - startMs) - memory.debtMs)
      if (waitMs >= 1) await sleep(waitMs)
      const excessMs = clock.monotonic() - startMs - targetMs
      memory.debtMs = Math.max(-DEBT_MS_MAX, Math.min(DEBT_MS_MAX, memory.debtMs + excessMs))
      if (failure !== undefined && clock.monotonic() - failure.atMs < FAILURE_LIFETIME_MS) {
        throw failure.error
      }
    },
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof ServiceError && error.status < 500
}
