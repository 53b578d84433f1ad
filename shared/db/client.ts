import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { Client, Pool, type PoolClient } from 'pg'

import type { Logger } from '../logger.ts'

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
 * Opens a pool of connections to Postgres; nothing is sent until the first query. A statement that
 * waits too long, as for a lock, is cancelled by the server; a server that says nothing is given up,
 * and so are transactions of a process that does.
 */
export function openDatabase(options: {
  readonly url: string
  /** 0 means no limit of our own. */
  readonly maxPoolSize: number
  readonly logger: Logger
  /** How long a statement may take. */
  readonly statementMs?: number
}): Database {
  const { statementMs = STATEMENT_MS } = options
  const pool = new Pool({
    connectionString: options.url,
    max: options.maxPoolSize === 0 ? UNLIMITED : options.maxPoolSize,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idleTimeoutMillis: 30_000,
    allowExitOnIdle: true,
    query_timeout: statementMs * SILENCE_FACTOR,
    // Not as a parameter of the connection: poolers refuse those that they do not know.
    verify: (client, done) => client.query(limitsOf(statementMs), done),
  })
  // Without listeners, a server that goes away would take this process with it: the pool hears for
  // connections that are idle, and nobody for one that is lent out between two of its queries.
  pool.on('error', (error) =>
    options.logger.warn({ error: error.message }, 'database connection lost'),
  )
  pool.on('connect', (client) => {
    client.on('error', ignoreLoss)
    leaveSilent(client)
  })
  return { db: drizzle(pool), pool, close: () => pool.end() }
}

/** The next query of the connection fails and tells. */
function ignoreLoss(): void {}

/** A process that is frozen in the middle of a transaction keeps its locks no longer than this. */
function limitsOf(statementMs: number): string {
  const idleMs = Math.ceil(statementMs * SILENCE_FACTOR)
  return `set statement_timeout = ${statementMs}; set idle_in_transaction_session_timeout = ${idleMs}`
}

/** Ends a connection that was given up, so that nothing queues behind the answer that never came. */
function leaveSilent(client: PoolClient): void {
  const query = client.query.bind(client) as (...given: unknown[]) => unknown
  const watched = (...given: unknown[]): unknown => {
    const answer = query(...given)
    if (answer instanceof Promise) {
      answer.catch((error: unknown) => {
        const isSilent = error instanceof Error && error.message === 'Query read timeout'
        if (isSilent && client instanceof Client) client.end().catch(ignoreLoss)
      })
    }
    return answer
  }
  client.query = watched as PoolClient['query']
}

// The pool needs a number. More than this only wait inside Postgres, whose own limit (100 by default) a
// burst of requests would otherwise meet as errors.
const UNLIMITED = 80
const CONNECT_TIMEOUT_MS = 5000
const STATEMENT_MS = 25_000
/** Beyond the server's own limit, by which it would have answered. */
const SILENCE_FACTOR = 1.2
