import { setTimeout as sleep } from 'node:timers/promises'

import type { UsageRow } from '#shared/db/schema/usage.ts'
import type { Logger } from '#shared/logger.ts'

import type { UsageRecord } from './usage-record.ts'

const BATCH_MAX = 500
const WAITING_MAX = 100_000
const RETRY_DELAY_MS = 500
const CLOSE_ATTEMPTS = 3

/**
 * Writes rows of usage behind the answers: at once when nothing is being written, else together
 * with what has come meanwhile. While the database is away, rows wait in memory, up to a bound.
 */
export class UsageWriter {
  readonly #record: Pick<UsageRecord, 'add'>
  readonly #log: Logger
  readonly #waiting: UsageRow[] = []
  #writing: Promise<void> | undefined
  #isClosing = false
  #lost = 0

  constructor(record: Pick<UsageRecord, 'add'>, log: Logger) {
    this.#record = record
    this.#log = log
  }

  write(row: UsageRow): void {
    if (this.#waiting.length >= WAITING_MAX) {
      if (this.#lost === 0) this.#log.error({ operation: 'usage.write' }, 'usage is being lost')
      this.#lost += 1
      return
    }
    this.#waiting.push(row)
    this.#writing ??= this.#drain().finally(() => (this.#writing = undefined))
  }

  /** Resolves when nothing waits any more, or when the time is over. */
  async flush(timeoutMs: number): Promise<void> {
    if (this.#writing === undefined) return
    const timeout = new AbortController()
    const tooLate = sleep(timeoutMs, undefined, { signal: timeout.signal }).catch(() => {
      // The rows were written in time.
    })
    await Promise.race([this.#writing, tooLate])
    timeout.abort()
  }

  /** Writes what waits; gives up after a few attempts when the database is away. */
  async close(): Promise<void> {
    this.#isClosing = true
    await this.#writing
  }

  async #drain(): Promise<void> {
    let failures = 0
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.slice(0, BATCH_MAX)
      try {
        await this.#record.add(batch)
        this.#waiting.splice(0, batch.length)
        failures = 0
        this.#lost = 0
      } catch (error) {
        failures += 1
        const rows = this.#waiting.length
        if (failures === 1)
          this.#log.warn({ operation: 'usage.write', err: error, rows }, 'usage waits')
        if (this.#isClosing && failures >= CLOSE_ATTEMPTS) {
          this.#log.error({ operation: 'usage.write', rows }, 'usage was lost')
          return
        }
        await sleep(RETRY_DELAY_MS)
      }
    }
  }
}
