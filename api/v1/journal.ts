import type { Redis } from 'ioredis'

import { type ContentCipher, readContent } from '#shared/queue/content-cipher.ts'

/** A row that was recorded and not erased. */
interface JournalEntry {
  readonly id: string
  readonly text: string
}

/** Rows on their way to the database, stored where they survive the death of this process. */
export interface Journal {
  /** Sent to Redis before this returns, so before anything that the caller writes afterwards. */
  note(id: string, text: string): void
  erase(ids: readonly string[]): void
  /** Rows that are overdue: their process died, or the database was unavailable. */
  leftBehind(): Promise<readonly JournalEntry[]>
}

/** A living process writes a recorded row within milliseconds. */
const LEFT_BEHIND_MS = 5000
const ENTRIES_PER_LOOK = 1000

/** Opens a journal in Redis; while Redis is away, nothing is recorded and nothing is found. */
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
