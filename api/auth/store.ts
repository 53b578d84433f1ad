import type { Clock } from '#shared/clock.ts'
import type { Db } from '#shared/db/client.ts'
import type { AuthTables } from '#shared/db/schema/auth.ts'

import { authFailure } from './errors.ts'

/** The tables of the user server in a database or an open transaction, and the clock. */
export interface Store {
  readonly db: Db
  readonly tables: AuthTables
  now(): Date
  /** Runs a function after the commit, or at once outside a transaction. */
  afterCommit(run: () => void): void
}

/** A store on the clock of the process. */
export function createStore(db: Db, tables: AuthTables, clock: Clock): Store {
  return { db, tables, now: () => new Date(clock.now()), afterCommit: (run) => run() }
}

/**
 * Runs `work` in a transaction. Results that must survive a failure are returned as outcomes and
 * thrown after the commit; unique violations of email address, phone number or factor name become
 * client errors.
 */
export async function inTransaction<T>(
  store: Store,
  work: (store: Store) => Promise<T>,
): Promise<T> {
  const waiting: (() => void)[] = []
  const afterCommit = (run: () => void): void => void waiting.push(run)
  try {
    const result = await store.db.transaction((db) => work({ ...store, db, afterCommit }))
    // A nested transaction passes its functions on to the outer one.
    for (const run of waiting) store.afterCommit(run)
    return result
  } catch (error) {
    throw translateConflict(error)
  }
}

interface PostgresError {
  readonly code?: string
  readonly constraint?: string
  readonly cause?: unknown
}

const UNIQUE_VIOLATION = '23505'
// Index names without the table prefix, and the error when they refuse a row.
const TAKEN = [
  ['users_email', 'email_exists'],
  ['users_phone', 'phone_exists'],
  ['mfa_factors_name', 'mfa_factor_name_conflict'],
] as const
const LOCK_NOT_AVAILABLE = '55P03'
const DEADLOCK = '40P01'

function translateConflict(error: unknown): unknown {
  const { code, constraint = '', cause } = (error ?? {}) as PostgresError
  if (code === LOCK_NOT_AVAILABLE || code === DEADLOCK)
    return authFailure('conflict', { cause: error })
  const taken = TAKEN.find(([index]) => constraint.endsWith(index))
  if (code === UNIQUE_VIOLATION && taken !== undefined) {
    return authFailure(taken[1], { cause: error })
  }
  // The query builder wraps errors of the driver.
  if (cause !== undefined && cause !== error && isPostgresError(cause)) {
    const translated = translateConflict(cause)
    return translated === cause ? error : translated
  }
  return error
}

function isPostgresError(value: unknown): value is PostgresError {
  return typeof value === 'object' && value !== null && 'code' in value
}
