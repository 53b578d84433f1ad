import { setTimeout as sleep } from 'node:timers/promises'

import type { Redis } from 'ioredis'

import type { Logger } from '#shared/logger.ts'
import { type ContentCipher, readContent } from '#shared/queue/content-cipher.ts'

const BATCH_MAX = 500
const WAITING_MAX = 100_000
const RETRY_DELAY_MS = 500
const CLOSE_ATTEMPTS = 3
const SWEEP_INTERVAL_MS = 5000
/**
 * Rows that follow a write within this time share the next statement, which costs more than its
 * rows.
 */
const WRITE_INTERVAL_MS = 50
/** The shortest time between two journal entries of a draft. */
const DRAFT_CHANGE_MS = 500
/**
 * Drafts of living processes are renewed within this time, so that no other process writes them.
 */
const DRAFT_REFRESH_MS = 2000

interface OutboxOptions<Row> {
  /** For the log. */
  readonly operation: string
  /** Writes rows; a row that exists stays unchanged. */
  add(rows: readonly Row[]): Promise<void>
  readonly log: Logger
  /** The journal in which rows outlive this process until they are written. */
  readonly journal?: {
    readonly store: Journal
    idOf(row: Row): string
    encode(row: Row): string
    decode(text: string): Row
  }
}

/**
 * Writes rows after the answers: at once when nothing was written recently, else together with rows
 * that arrive within a moment. While the database is unavailable, rows wait in memory, up to a
 * limit. The journaled rows of a killed process are written by another one.
 */
export class Outbox<Row> {
  readonly #options: OutboxOptions<Row>
  readonly #waiting: Row[] = []
  readonly #sweeper: NodeJS.Timeout | undefined
  /** Rows that are not complete yet, by id, with the time at which each was journaled. */
  readonly #drafts = new Map<string, { row: Row; recordedAtMs: number }>()
  readonly #refresher: NodeJS.Timeout | undefined
  #writing: Promise<void> | undefined
  #sweeping: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #writtenAtMs = Number.NEGATIVE_INFINITY
  /** A caller waits for the write. */
  #isUrgent = false
  #isClosing = false
  #lost = 0

  constructor(options: OutboxOptions<Row>) {
    this.#options = options
    if (options.journal === undefined) return
    this.#sweeper = setInterval(() => {
      this.#sweeping ??= this.sweep().finally(() => (this.#sweeping = undefined))
    }, SWEEP_INTERVAL_MS)
    this.#sweeper.unref()
    this.#refresher = setInterval(() => {
      for (const { row } of this.#drafts.values()) this.#note(row)
    }, DRAFT_REFRESH_MS)
    this.#refresher.unref()
  }

  /**
   * Journals what a row would be if this process died now; `write` or `discard` ends the draft. A
   * killed process leaves the last draft of half a second before to be written by another one.
   */
  draft(row: Row): void {
    const { journal } = this.#options
    if (journal === undefined) return
    const before = this.#drafts.get(journal.idOf(row))
    if (before === undefined || performance.now() - before.recordedAtMs >= DRAFT_CHANGE_MS) {
      this.#note(row)
    } else {
      before.row = row
    }
  }

  /** Ends a draft without a row. */
  discard(id: string): void {
    if (this.#drafts.delete(id)) this.#options.journal?.store.erase([id])
  }

  write(row: Row): void {
    const { journal, operation, log } = this.#options
    if (journal !== undefined) this.#drafts.delete(journal.idOf(row))
    journal?.store.note(journal.idOf(row), journal.encode(row))
    if (this.#waiting.length >= WAITING_MAX) {
      // The journal still contains it, unless Redis is unavailable too.
      if (this.#lost === 0) log.error({ operation }, 'rows are dropped: the database is away')
      this.#lost += 1
      return
    }
    this.#waiting.push(row)
    this.#writeSoon()
  }

  /** Resolves when nothing waits, or after the time limit. */
  async flush(timeoutMs: number): Promise<void> {
    this.#writeNow()
    if (this.#writing === undefined) return
    const timeout = new AbortController()
    const tooLate = sleep(timeoutMs, undefined, { signal: timeout.signal }).catch(() => {
      // All rows were written within the time limit.
    })
    await Promise.race([this.#writing, tooLate])
    timeout.abort()
  }

  /** Writes the waiting rows; stops after a few attempts when the database is unavailable. */
  async close(): Promise<void> {
    this.#isClosing = true
    clearInterval(this.#sweeper)
    clearInterval(this.#refresher)
    await this.#sweeping
    this.#writeNow()
    await this.#writing
  }

  /** Writes the rows that other processes recorded before they died. */
  async sweep(): Promise<void> {
    const { journal, operation, log } = this.#options
    if (journal === undefined) return
    try {
      const entries = await journal.store.leftBehind()
      for (let at = 0; at < entries.length; at += BATCH_MAX) {
        await this.#add(entries.slice(at, at + BATCH_MAX).map(({ text }) => journal.decode(text)))
      }
    } catch (error) {
      log.debug({ operation, err: error }, 'the remaining messages wait')
    }
  }

  #note(row: Row): void {
    const { journal } = this.#options
    if (journal === undefined) return
    this.#drafts.set(journal.idOf(row), { row, recordedAtMs: performance.now() })
    journal.store.note(journal.idOf(row), journal.encode(row))
  }

  #writeSoon(): void {
    if (this.#writing !== undefined || this.#timer !== undefined) return
    const sinceMs = performance.now() - this.#writtenAtMs
    if (sinceMs >= WRITE_INTERVAL_MS || this.#isClosing) this.#start()
    else this.#timer = setTimeout(() => this.#start(), WRITE_INTERVAL_MS - sinceMs)
  }

  #writeNow(): void {
    this.#isUrgent = this.#waiting.length > 0
    this.#start()
  }

  #start(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#waiting.length > 0) this.#writing ??= this.#drain()
  }

  async #drain(): Promise<void> {
    const { operation, log } = this.#options
    let failures = 0
    try {
      do {
        this.#writtenAtMs = performance.now()
        const batch = this.#waiting.slice(0, BATCH_MAX)
        try {
          await this.#add(batch)
          this.#waiting.splice(0, batch.length)
          failures = 0
          this.#lost = 0
        } catch (error) {
          failures += 1
          const rows = this.#waiting.length
          if (failures === 1) log.warn({ operation, err: error, rows }, 'rows wait to be written')
          if (this.#isClosing && failures >= CLOSE_ATTEMPTS) {
            log.error({ operation, rows }, 'rows were not written')
            return
          }
          await sleep(RETRY_DELAY_MS)
        }
      } while (this.#waiting.length > 0 && (failures > 0 || this.#isWanted()))
    } finally {
      // In the same event-loop turn as the last check, so that no caller waits for a finished
      // write.
      this.#writing = undefined
      this.#isUrgent = false
      if (this.#waiting.length > 0 && !this.#isClosing) this.#writeSoon()
    }
  }

  /** Whether waiting rows are written at once. */
  #isWanted(): boolean {
    return this.#isUrgent || this.#isClosing || this.#waiting.length >= BATCH_MAX
  }

  /** Writes rows and removes them from the journal. A refused row does not block others. */
  async #add(rows: readonly Row[]): Promise<void> {
    const { journal, add, operation, log } = this.#options
    try {
      await add(rows)
    } catch (error) {
      if (!isRefusal(error)) throw error
      if (rows.length > 1) {
        for (const row of rows) await this.#add([row])
        return
      }
      log.error({ operation, err: error }, 'a row was refused and is dropped')
    }
    journal?.store.erase(rows.map((row) => journal.idOf(row)))
  }
}

/** Errors for rows that the database never accepts, such as rows of deleted owners. */
function isRefusal(error: unknown): boolean {
  const { code } = ((error as Error).cause ?? error) as { readonly code?: unknown }
  return typeof code === 'string' && /^2[23]/.test(code)
}

/** A journaled row that was not removed. */
interface JournalEntry {
  readonly id: string
  readonly text: string
}

/** Rows that are not in the database yet; the journal survives the death of this process. */
interface Journal {
  /** Sent to Redis before this returns, and therefore before later writes of the caller. */
  note(id: string, text: string): void
  erase(ids: readonly string[]): void
  /** Rows that are overdue: their process died, or the database was unavailable. */
  leftBehind(): Promise<readonly JournalEntry[]>
}

/** A living process writes a journaled row within milliseconds. */
const LEFT_BEHIND_MS = 5000
const ENTRIES_PER_LOOK = 1000

/**
 * Opens a journal in Redis; while Redis is unavailable, nothing is recorded and nothing is found.
 */
export function openJournal(redis: Redis, key: string, cipher?: ContentCipher): Journal {
  const contextOf = (id: string): string => `${key} ${id}`
  const encode = (id: string, text: string): string =>
    cipher?.encrypt(text, contextOf(id)).toString('base64') ?? text
  // Clear entries, of an earlier release or without a key, are JSON and begin with a brace.
  const decode = (id: string, text: string): string =>
    text.startsWith('{')
      ? text
      : readContent(Buffer.from(text, 'base64'), cipher, contextOf(id)).toString('utf8')
  const quietly = (work: Promise<unknown>): void => {
    work.catch(() => {
      // The rows are also in memory, and a row that is journaled twice is written once.
    })
  }
  return {
    note: (id, text) => quietly(redis.hset(key, id, `${Date.now()} ${encode(id, text)}`)),
    erase: (ids) => quietly(redis.hdel(key, ...ids)),
    async leftBehind() {
      if ((await redis.hlen(key)) === 0) return []
      const oldestMs = Date.now() - LEFT_BEHIND_MS
      const found: JournalEntry[] = []
      let cursor = '0'
      do {
        const [next, fields] = await redis.hscan(key, cursor, 'COUNT', ENTRIES_PER_LOOK)
        for (let i = 0; i + 1 < fields.length; i += 2) {
          const value = fields[i + 1] as string
          const end = value.indexOf(' ')
          if (Number(value.slice(0, end)) > oldestMs) continue
          const id = fields[i] as string
          found.push({ id, text: decode(id, value.slice(end + 1)) })
        }
        cursor = next
      } while (cursor !== '0' && found.length < ENTRIES_PER_LOOK)
      return found
    },
  }
}
