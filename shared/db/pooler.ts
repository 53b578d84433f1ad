import { Client, type ClientConfig } from 'pg'

import type { Logger } from '#shared/logger.ts'

import { statementLimits } from './client.ts'
import { chooseHost } from './hosts.ts'

const PROBE = 'millrace_pooler_probe'
/** Each attempt may meet a server connection that another client has just used. */
const LOOKS = 3

/** The mode of a pooler such as PgBouncer; undefined without a pooler. */
type Pooling = 'session' | 'transaction' | undefined

/**
 * Prepares for a pooler between this process and Postgres. In transaction mode a client loses the
 * settings of its connection, so the time limits are set for the role in this database. Throws when
 * the pooler does not support prepared statements.
 */
export async function preparePooler(url: string, log: Logger): Promise<void> {
  const connectionString = await chooseHost(url)
  const [first, second] = [await connect({ connectionString }), await connect({ connectionString })]
  try {
    if ((await poolingOf(first, second)) !== 'transaction') return
    if (!(await keepsStatements(first))) {
      throw new Error(
        'Postgres is behind a pooler in transaction mode that does not keep prepared statements: ' +
          'use PgBouncer 1.21 or newer with max_prepared_statements above 0, or its session mode',
      )
    }
    await limitRole(first, log)
  } finally {
    await Promise.all([first.end(), second.end()])
  }
}

async function connect(config: ClientConfig): Promise<Client> {
  const client = new Client({ ...config, connectionTimeoutMillis: 5000, query_timeout: 30_000 })
  // The next query reports a lost connection.
  client.on('error', () => {})
  await client.connect()
  return client
}

/**
 * A pooler reports a process id of its own to the client. In transaction mode an idle client
 * releases its server connection, so two clients meet the same server process.
 */
async function poolingOf(first: Client, second: Client): Promise<Pooling> {
  const { processID } = first as unknown as { processID: number | null }
  const server = await backendOf(first)
  if (processID === server) return undefined
  for (let look = 0; look < LOOKS; look++) {
    if ((await backendOf(first)) === (await backendOf(second))) return 'transaction'
  }
  return 'session'
}

async function backendOf(client: Client): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  return rows[0]?.pid
}

/** A pooler that supports prepared statements renames them at the server. */
async function keepsStatements(client: Client): Promise<boolean> {
  const text = 'select count(*)::int as count from pg_prepared_statements where name = $1'
  const { rows } = await client.query<{ count: number }>({ name: PROBE, text, values: [PROBE] })
  return rows[0]?.count === 0
}

async function limitRole(client: Client, log: Logger): Promise<void> {
  const { rows } = await client.query<{ database: string }>('select current_database() as database')
  const database = client.escapeIdentifier(String(rows[0]?.database))
  const operation = 'database.pooler'
  try {
    for (const [name, value] of Object.entries(statementLimits())) {
      await client.query(`alter role current_user in database ${database} set ${name} = '${value}'`)
    }
    log.info({ operation }, 'Postgres is behind a pooler: time limits are set for the role')
  } catch (error) {
    log.warn(
      { operation, err: error },
      'Postgres is behind a pooler and the time limits cannot be set for the role: statements have none',
    )
  }
}
