import { Client, type ClientBase, type Pool } from 'pg'

import { parseDatabaseUrl } from '#shared/config/database-url.ts'

const PROBE_TIMEOUT_MS = 2000
const IS_READ_ONLY = `select pg_is_in_recovery() as "isStandby",
  pg_is_in_recovery() or current_setting('transaction_read_only')::bool as "isReadOnly"`

/**
 * The servers of a connection string, one of which is in use. The server is chosen when the first
 * connection is opened, and again after a connection failed to open or refused a write.
 */
export class DatabaseHosts {
  readonly #urls: readonly string[]
  readonly #mustWrite: boolean
  #chosen: string | undefined
  #choosing: Promise<string> | undefined

  constructor(url: string) {
    const { urls, mustWrite } = parseDatabaseUrl(url)
    this.#urls = urls
    this.#mustWrite = mustWrite
    // A single server needs no check.
    if (this.isFixed) this.#chosen = urls[0]
  }

  /** Whether the single server is used without a check. */
  get isFixed(): boolean {
    return this.#urls.length === 1 && !this.#mustWrite
  }

  /** The server in use, or the first one before a choice. */
  get url(): string {
    return this.#chosen ?? (this.#urls[0] as string)
  }

  /**
   * Chooses the first server that answers and, if required, accepts writes. Rejects without one.
   */
  async choose(): Promise<string> {
    if (this.#chosen !== undefined) return this.#chosen
    this.#choosing ??= this.#probeAll().finally(() => {
      this.#choosing = undefined
    })
    this.#chosen = await this.#choosing
    return this.#chosen
  }

  /** Reports that the server in use failed: the next connection chooses again. */
  invalidate(): void {
    if (!this.isFixed) this.#chosen = undefined
  }

  async #probeAll(): Promise<string> {
    const probes = await Promise.allSettled(this.#urls.map((url) => probe(url, this.#mustWrite)))
    const found = probes.find((outcome) => outcome.status === 'fulfilled')
    if (found !== undefined) return found.value
    const [first] = probes
    throw first?.status === 'rejected' ? first.reason : new Error('no Postgres server is named')
  }
}

/** The connection string of the server to use now. */
export function chooseHost(url: string): Promise<string> {
  return new DatabaseHosts(url).choose()
}

/** The class of a pool's connections. Each connects to the server in use at that time. */
export function clientOf(hosts: DatabaseHosts): new () => ClientBase {
  class HostClient extends Client {
    constructor(options: object = {}) {
      super({ ...options, connectionString: hosts.url })
      // An error of a connection, even before it is open, means that the server may be lost.
      this.once('error', () => hosts.invalidate())
    }
  }
  return HostClient as new () => ClientBase
}

/** Makes a pool choose its server before it opens a connection, unless one is chosen already. */
export function connectToChosen(pool: Pool, hosts: DatabaseHosts): void {
  if (hosts.isFixed) return
  const connect = pool.connect.bind(pool) as (...given: unknown[]) => unknown
  const connectToHost = (callback?: (error: Error) => void): unknown => {
    if (callback === undefined) return hosts.choose().then(() => attempt(connect(), hosts))
    const invalidating = (error: Error | undefined, ...more: unknown[]): void => {
      if (error) hosts.invalidate()
      ;(callback as (...given: unknown[]) => void)(error, ...more)
    }
    hosts.choose().then(() => connect(invalidating), callback)
    return undefined
  }
  pool.connect = connectToHost as Pool['connect']
}

async function attempt(connecting: unknown, hosts: DatabaseHosts): Promise<unknown> {
  try {
    return await connecting
  } catch (error) {
    hosts.invalidate()
    throw error
  }
}

async function probe(url: string, mustWrite: boolean): Promise<string> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: PROBE_TIMEOUT_MS,
    query_timeout: PROBE_TIMEOUT_MS,
  })
  // The query in flight rejects too.
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ isReadOnly: boolean }>(IS_READ_ONLY)
    if (mustWrite && rows[0]?.isReadOnly === true) {
      throw Object.assign(new Error(`Postgres at ${client.host}:${client.port} is read-only`), {
        code: '25006',
      })
    }
    return url
  } finally {
    await client.end().catch(() => {})
  }
}

/** Throws unless the database answers. */
export async function ping(client: Pick<Client | Pool, 'query'>): Promise<void> {
  await client.query('select 1')
}

/** Throws unless the database takes writes. */
export async function requireWrites(client: Pick<Client | Pool, 'query'>): Promise<void> {
  const { rows } = await client.query<{ isStandby: boolean; isReadOnly: boolean }>(IS_READ_ONLY)
  if (rows[0]?.isReadOnly !== true) return
  const why = rows[0].isStandby ? 'it is a standby' : 'default_transaction_read_only is on'
  throw new Error(`Postgres is read-only: ${why}`)
}
