import type { Pool, PoolClient } from 'pg'
import { Histogram, type Registry } from 'prom-client'

import { SECONDS_BUCKETS } from './registry.ts'
import { inChildSpan, type Tracing } from './tracing.ts'

type Query = (...given: unknown[]) => unknown

const DURATION = 'db_client_operation_duration_seconds'
const OPERATIONS = new Set(['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'BEGIN', 'COMMIT', 'ROLLBACK'])
const TABLE = /\b(?:from|into|update)\s+"?(?:\w+"?\."?)?([a-z_]\w*)"?/i

/**
 * Measures and traces the queries of a pool and its clients. Records only the verb and the table of
 * a query, never its text or values. Queries with a callback, which the pool uses internally, are
 * not observed.
 */
export function observePool(pool: Pool, registry: Registry, tracing: Tracing): void {
  const duration = durationIn(registry)
  const watch = (query: Query): Query => {
    return (...given) => {
      if (typeof given.at(-1) === 'function' || isSubmittable(given[0])) return query(...given)
      return observed({ duration, tracing }, textOf(given[0]), async () => query(...given))
    }
  }
  pool.query = watch(pool.query.bind(pool) as Query) as Pool['query']
  const connect = pool.connect.bind(pool) as (callback?: unknown) => unknown
  const observedConnect = (callback?: unknown): unknown => {
    if (callback !== undefined) return connect(callback)
    return (connect() as Promise<PoolClient>).then((client) => lend(client, watch))
  }
  pool.connect = observedConnect as Pool['connect']
}

/** Several pools share the histogram of a registry. */
function durationIn(registry: Registry): Histogram<'db_operation_name' | 'outcome'> {
  const known = registry.getSingleMetric(DURATION)
  if (known instanceof Histogram) return known
  return new Histogram({
    name: DURATION,
    help: 'Queries, waiting for a connection included.',
    labelNames: ['db_operation_name', 'outcome'],
    buckets: [...SECONDS_BUCKETS],
    registers: [registry],
  })
}

/** Observes a client until it is released. */
function lend(client: PoolClient, watch: (query: Query) => Query): PoolClient {
  const { query, release } = client
  client.query = watch(query.bind(client) as Query) as PoolClient['query']
  client.release = (error) => {
    client.query = query
    client.release = release
    release.call(client, error)
  }
  return client
}

async function observed(
  { duration, tracing }: { duration: Histogram<'db_operation_name' | 'outcome'>; tracing: Tracing },
  text: string,
  work: () => Promise<unknown>,
): Promise<unknown> {
  const operation = operationOf(text)
  const table = TABLE.exec(text)?.[1]
  const stop = duration.startTimer({ db_operation_name: operation })
  const attributes = {
    'db.system.name': 'postgresql',
    'db.operation.name': operation,
    ...(table !== undefined && { 'db.collection.name': table }),
  }
  const name = table === undefined ? operation : `${operation} ${table}`
  try {
    const result = await inChildSpan(tracing, { name, kind: 'CLIENT' as const, attributes }, work)
    stop({ outcome: 'ok' })
    return result
  } catch (error) {
    stop({ outcome: 'failed' })
    throw error
  }
}

function textOf(query: unknown): string {
  if (typeof query === 'string') return query
  if (typeof query === 'object' && query !== null && 'text' in query) return String(query.text)
  return ''
}

function operationOf(text: string): string {
  const word = /^\s*(\w+)/.exec(text)?.[1]?.toUpperCase() ?? ''
  return OPERATIONS.has(word) ? word : 'OTHER'
}

/** Cursors and query streams report by themselves. */
function isSubmittable(query: unknown): boolean {
  return typeof query === 'object' && query !== null && 'submit' in query
}
