import { Client } from 'pg'
import { describe, expect } from 'vitest'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { openDatabase } from '#shared/db/client.ts'
import { requireWrites } from '#shared/db/hosts.ts'
import { preparePooler } from '#shared/db/pooler.ts'
import { eventually } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'

describe('several Postgres servers', () => {
  it('are followed to the one that accepts writes', async ({ folder, log }) => {
    const servers = await Promise.all(
      ['a', 'b'].map((name) => startPostgres(`${folder}/${name}`, { password: 'test' })),
    )
    const [first, second] = servers.map(({ url }) => new URL(url))
    if (first === undefined || second === undefined) throw new Error('two servers were started')
    // A standby answers queries and refuses writes; here a setting makes the server do so.
    const setReadOnly = async (url: URL, isReadOnly: boolean) => {
      const client = new Client({ connectionString: url.href })
      await client.connect()
      await client.query(`alter system set default_transaction_read_only = ${isReadOnly}`)
      await client.query('select pg_reload_conf()')
      await client.end()
      await eventually(async () => (await readOnlyOf(url)) === (isReadOnly ? 'on' : 'off'))
    }
    await setReadOnly(first, true)
    const url = `postgres://millrace:test@${first.host},${second.host}/postgres`
    await preparePooler(url, log)
    const database = openDatabase({ url, maxPoolSize: 2, logger: log })
    const portOf = async () =>
      (
        (await database.pool.query(
          `create temp table if not exists t (); show port`,
        )) as unknown as {
          rows: { port: string }[]
        }[]
      ).at(-1)?.rows[0]?.port
    try {
      expect(await portOf()).toBe(second.port)
      await requireWrites(database.pool)
      const standby = openDatabase({ url: first.href, maxPoolSize: 1, logger: log })
      await expect(requireWrites(standby.pool)).rejects.toThrow('default_transaction_read_only')
      await standby.close()
      // A switch-over: the connection stays, and refuses writes from now on.
      await setReadOnly(first, false)
      await setReadOnly(second, true)
      await eventually(async () => (await portOf().catch(() => '')) === first.port)
      // The first is lost, and the second is promoted.
      await servers[0]?.stop()
      await expect(portOf()).rejects.toThrow()
      await setReadOnly(second, false)
      await eventually(async () => (await portOf().catch(() => '')) === second.port)
    } finally {
      await database.close()
      await Promise.all(servers.map((server) => server.stop()))
    }
  })
})

async function readOnlyOf(url: URL): Promise<string | undefined> {
  const client = new Client({ connectionString: url.href })
  await client.connect()
  const { rows } = await client.query<{ default_transaction_read_only: string }>(
    'show default_transaction_read_only',
  )
  await client.end()
  return rows[0]?.default_transaction_read_only
}
