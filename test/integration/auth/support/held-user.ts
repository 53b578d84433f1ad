import type { PoolClient } from 'pg'
import { expect } from 'vitest'

import type { CallResult, TestServer } from './server.ts'

/** Changes the database while a request waits for the row of a user; returns the request. */
export async function whileWaiting(
  { database }: Pick<TestServer, 'database'>,
  userId: string,
  race: {
    readonly request: () => Promise<CallResult>
    readonly change: (client: PoolClient) => Promise<unknown>
  },
): Promise<CallResult> {
  const client = await database.pool.connect()
  try {
    await client.query('begin')
    await client.query('select id from users where id = $1 for update', [userId])
    const answer = race.request()
    const numWaiting = async () => {
      const { rowCount } = await database.pool.query(
        `select 1 from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'`,
      )
      return rowCount
    }
    await expect.poll(numWaiting).toBe(1)
    await race.change(client)
    await client.query('commit')
    return await answer
  } finally {
    client.release()
  }
}
