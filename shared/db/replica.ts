import { drizzle } from 'drizzle-orm/node-postgres'
import type { Pool } from 'pg'

import { type Clock, withinTime } from '#shared/clock.ts'
import type { Logger } from '#shared/logger.ts'

import { type Database, type Db, openDatabase } from './client.ts'

type Queries = Pick<Pool, 'query'>

/** Queries of lists, which may lag slightly behind the last write. */
export interface ListReads {
  readonly db: Db
  readonly pool: Queries
  /** The read replica; undefined when none is configured. */
  readonly replica?: Replica
  close(): Promise<void>
}

/** How often the positions of both servers are compared. */
const CHECK_INTERVAL_MS = 1000
const CHECK_TIMEOUT_MS = 2000
/**
 * SQLSTATE prefixes after which the primary is asked instead: lost connections, shutdowns, too many
 * connections, rows that the primary removed during the query, and tables or columns whose
 * migration has not reached the replica.
 */
const ELSEWHERE = /^(08|53|57P|40001|42P01|42703)/

/**
 * Opens the queries of lists: on the read replica while it works and is at most `lagSecondsMax`
 * behind, on the primary otherwise, and without a replica.
 */
export function openListReads(options: {
  readonly primary: Database
  readonly replicaUrl: string
  readonly maxPoolSize: number
  readonly lagSecondsMax: number
  readonly clock: Clock
  readonly logger: Logger
}): ListReads {
  const { primary, replicaUrl, logger, maxPoolSize } = options
  if (replicaUrl === '') return { db: primary.db, pool: primary.pool, close: async () => {} }
  const database = openDatabase({ url: replicaUrl, maxPoolSize, logger })
  const replica = new Replica({ ...options, pool: database.pool, primary: primary.pool })
  const pool = new RoutedQueries(replica, primary.pool)
  return {
    db: drizzle(pool as unknown as Pool),
    pool: pool as Queries,
    replica,
    close: () => {
      replica.close()
      return database.close()
    },
  }
}

/** The primary, and the database that lists are read from. */
export interface ListDatabases {
  readonly db: Db
  readonly lists: Db
}

/**
 * Reads one page of a list. A replica that lacks the row of the cursor would return an empty page,
 * as if the list ended there, so the primary is asked in that case.
 */
export async function readPage<Row>(
  { db, lists }: ListDatabases,
  after: string | undefined,
  read: (db: Db) => PromiseLike<Row[]>,
): Promise<Row[]> {
  const rows = await read(lists)
  const mayLackCursor = after !== undefined && lists !== db
  return mayLackCursor && rows.length === 0 ? read(db) : rows
}

interface ReplicaOptions {
  readonly pool: Pool
  readonly primary: Queries
  readonly lagSecondsMax: number
  readonly clock: Clock
}

/**
 * A read replica and whether it may be read.
 *
 * 1. Every second the primary is asked for the position of its log, which is kept with its time.
 * 2. The replica is asked for the position up to which it has replayed the log.
 * 3. It has all that was written until the newest kept position that it has replayed.
 * 4. Without such a position within the limit it is too far behind.
 *
 * Clocks of the servers are not compared, and a primary that writes nothing causes no lag.
 */
class Replica {
  readonly pool: Pool
  readonly #primary: Queries
  readonly #lagMsMax: number
  readonly #clock: Clock
  /** Positions of the primary within the limit, the oldest first. */
  #written: { readonly position: bigint; readonly atMs: number }[] = []
  #fault: Error | undefined = new Error('the replica was not checked yet')
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor({ pool, primary, lagSecondsMax, clock }: ReplicaOptions) {
    this.pool = pool
    this.#primary = primary
    this.#lagMsMax = lagSecondsMax * 1000
    this.#clock = clock
    void this.#checkRepeatedly()
  }

  /** Why the replica is not read; undefined while it is. */
  get fault(): Error | undefined {
    return this.#fault
  }

  /** Stops reading the replica until a check succeeds. */
  fail(fault: Error): void {
    this.#fault = fault
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
  }

  async #checkRepeatedly(): Promise<void> {
    const checking = this.#check()
    const late = () => new Error(`no answer within ${CHECK_TIMEOUT_MS} ms`)
    this.#fault = await withinTime(checking, CHECK_TIMEOUT_MS, late).then(
      () => undefined,
      (error: Error) => error,
    )
    // A silent server is not asked again before the query to it has ended.
    await checking.catch(() => {})
    if (this.#isClosed) return
    this.#timer = setTimeout(() => void this.#checkRepeatedly(), CHECK_INTERVAL_MS).unref()
  }

  async #check(): Promise<void> {
    const atMs = this.#clock.monotonic()
    const written = await positionOf(this.#primary, 'pg_current_wal_lsn()')
    this.#written = this.#written.filter((each) => atMs - each.atMs <= this.#lagMsMax)
    this.#written.push({ position: written, atMs })
    const { rows } = await this.pool.query<{ isStandby: boolean }>(
      'select pg_is_in_recovery() as "isStandby"',
    )
    if (rows[0]?.isStandby !== true) throw new Error('the server is not a standby')
    const replayed = await positionOf(this.pool, 'pg_last_wal_replay_lsn()')
    if (this.#written.some(({ position }) => position <= replayed)) return
    throw new Error(`the replica is more than ${this.#lagMsMax / 1000} s behind the primary`)
  }
}

/** Asks the replica while it works, and the primary otherwise. */
class RoutedQueries {
  readonly #replica: Replica
  readonly #primary: Queries

  constructor(replica: Replica, primary: Queries) {
    this.#replica = replica
    this.#primary = primary
  }

  async query(...given: unknown[]): Promise<unknown> {
    if (this.#replica.fault !== undefined) return ask(this.#primary, given)
    try {
      return await ask(this.#replica.pool, given)
    } catch (error) {
      const { code } = error as { readonly code?: unknown }
      // Errors of the driver have other codes or none.
      const isOfQuery = error instanceof Error && 'severity' in error
      if (isOfQuery && !ELSEWHERE.test(String(code))) throw error
      this.#replica.fail(error as Error)
      return ask(this.#primary, given)
    }
  }
}

function ask(pool: Queries, given: readonly unknown[]): Promise<unknown> {
  return (pool as { query(...given: readonly unknown[]): Promise<unknown> }).query(...given)
}

/** A position of the log in bytes. */
async function positionOf(pool: Queries, position: string): Promise<bigint> {
  const { rows } = await pool.query<{ bytes: string | null }>(
    `select pg_wal_lsn_diff(${position}, '0/0')::text as bytes`,
  )
  return BigInt(rows[0]?.bytes ?? 0)
}
