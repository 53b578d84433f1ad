import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import { Pool } from 'pg'

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

export interface Database {
  readonly db: Db
  readonly pool: Pool
  close(): Promise<void>
}

/** Opens a pool of connections to Postgres; nothing is sent until the first query. */
export function openDatabase(options: {
  readonly url: string
  /** 0 means no limit of our own. */
  readonly maxPoolSize: number
  readonly logger: Logger
}): Database {
  const pool = new Pool({
    connectionString: options.url,
    max: options.maxPoolSize === 0 ? UNLIMITED : options.maxPoolSize,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idleTimeoutMillis: 30_000,
    allowExitOnIdle: true,
  })
  // Without listeners, a server that goes away would take this process with it: the pool hears for
  // connections that are idle, and nobody for one that is lent out between two of its queries.
  pool.on('error', (error) =>
    options.logger.warn({ error: error.message }, 'database connection lost'),
  )
  pool.on('connect', (client) => client.on('error', ignoreLoss))
  return { db: drizzle(pool), pool, close: () => pool.end() }
}

/** The next query of the connection fails and tells. */
function ignoreLoss(): void {}

// The pool needs a number. More than this only wait inside Postgres, whose own limit (100 by default) a
// burst of requests would otherwise meet as errors.
const UNLIMITED = 80
const CONNECT_TIMEOUT_MS = 5000
