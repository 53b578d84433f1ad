import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { Client, Pool, type PoolClient } from 'pg'

import type { Logger } from '#shared/logger.ts'

import { clientOf, connectToChosen, DatabaseHosts } from './hosts.ts'

/** A query runner: the database itself or an open transaction of it. */
export type Db = Pick<
  NodePgDatabase,
  | 'select'
  | 'selectDistinct'
  | 'insert'
  | 'update'
  | 'delete'
  | 'with'
  | '$with'
  | 'execute'
  | 'transaction'
>

/** A pool of connections, and queries over it. */
export interface Database {
  readonly db: Db
  readonly pool: Pool
  close(): Promise<void>
}

/**
 * Opens a pool of connections to Postgres. It connects with the first query. The server cancels a
 * statement that exceeds the time limit, for instance while it waits for a lock. The client closes
 * connections to a silent server, and the server ends transactions of a silent client.
 */
export function openDatabase(options: {
  readonly url: string
  /** The number of connections; 0 derives it from the server's limit. */
  readonly maxPoolSize: number
  readonly logger: Logger
  /** The time limit of one statement. */
  readonly statementMs?: number
}): Database {
  const { statementMs = STATEMENT_MS } = options
  const hosts = new DatabaseHosts(options.url)
  const pool = new Pool({
    Client: clientOf(hosts),
    max: options.maxPoolSize || DEFAULT_POOL_SIZE,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idleTimeoutMillis: 30_000,
    allowExitOnIdle: true,
    query_timeout: statementMs * SILENCE_FACTOR,
    // Not a connection parameter: poolers refuse parameters that they do not know.
    verify: (client, done) => client.query(limitsOf(statementMs), done),
  })
  connectToChosen(pool, hosts)
  // An `error` event without a listener would end the process. The pool listens on idle connections
  // only, so connections in use need a listener between two queries.
  pool.on('error', (error) =>
    options.logger.warn({ error: error.message }, 'database connection lost'),
  )
  pool.on('connect', (client) => {
    client.on('error', ignoreLoss)
    leaveUseless(client, hosts)
  })
  return { db: drizzle(pool), pool, close: () => pool.end() }
}

/**
 * Sizes a pool without a configured size so that five processes fit into the server's connections.
 */
export async function fitPool(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ usable: number }>(
    `select current_setting('max_connections')::int -
       current_setting('superuser_reserved_connections')::int as usable`,
  )
  const share = Math.floor((rows[0]?.usable ?? 0) / PROCESSES)
  pool.options.max = Math.min(DEFAULT_POOL_SIZE, Math.max(POOL_SIZE_MIN, share))
}

/** The next query on this connection fails and reports the error. */
function ignoreLoss(): void {}

/** The time limits of a connection. The second one bounds how long a frozen process holds locks. */
export function statementLimits(statementMs = STATEMENT_MS): Readonly<Record<string, number>> {
  return {
    statement_timeout: statementMs,
    idle_in_transaction_session_timeout: Math.ceil(statementMs * SILENCE_FACTOR),
  }
}

function limitsOf(statementMs: number): string {
  const limits = Object.entries(statementLimits(statementMs))
  return limits.map(([name, value]) => `set ${name} = ${value}`).join('; ')
}

/**
 * Closes a connection whose query timed out, so that no later query waits for its answer. Also
 * closes a connection to a server that has become a standby.
 */
function leaveUseless(client: PoolClient, hosts: DatabaseHosts): void {
  const query = client.query.bind(client) as (...given: unknown[]) => unknown
  const noteReadOnly = (error: unknown): boolean => {
    const isReadOnly = (error as { readonly code?: unknown } | null)?.code === READ_ONLY
    if (isReadOnly) hosts.invalidate()
    return isReadOnly
  }
  const watched = (...given: unknown[]): unknown => {
    const callback = given.at(-1)
    if (typeof callback === 'function') {
      // Queries of the pool itself, which closes the connection after a failure.
      given[given.length - 1] = (error: unknown, ...more: unknown[]) => {
        noteReadOnly(error)
        callback(error, ...more)
      }
    }
    const answer = query(...given)
    if (answer instanceof Promise) {
      answer.catch((error: unknown) => {
        const isSilent = error instanceof Error && error.message === 'Query read timeout'
        const isUseless = noteReadOnly(error) || isSilent
        if (isUseless && client instanceof Client) client.end().catch(ignoreLoss)
      })
    }
    return answer
  }
  client.query = watched as PoolClient['query']
}

/** The pool size without a configured size, until the server's own limit is known. */
const DEFAULT_POOL_SIZE = 20
/** The server's connections are shared among this many processes. */
const PROCESSES = 5
const POOL_SIZE_MIN = 4
const CONNECT_TIMEOUT_MS = 5000
/** SQLSTATE of a write that a standby refuses. */
const READ_ONLY = '25006'
const STATEMENT_MS = 25_000
/** Longer than the server's own limit, so that the server reports the time-out first. */
const SILENCE_FACTOR = 1.2

const preparedStatements = new WeakMap<Db, Map<string, unknown>>()

/**
 * A statement with placeholders, for hot paths. It is built once per database; Postgres parses and
 * plans it once per connection.
 */
export function prepared<Statement>(
  db: Db,
  name: string,
  build: (name: string) => Statement,
): Statement {
  const ofDatabase = preparedStatements.get(db) ?? new Map<string, unknown>()
  preparedStatements.set(db, ofDatabase)
  const statement = (ofDatabase.get(name) as Statement | undefined) ?? build(name)
  ofDatabase.set(name, statement)
  return statement
}
