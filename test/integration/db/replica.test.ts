import { sql } from 'drizzle-orm'
import { describe, expect } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { openDatabase } from '#shared/db/client.ts'
import { openListReads } from '#shared/db/replica.ts'
import { eventually } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'
import { runOn, startStandbyPair } from '#test/support/standby.ts'

describe('a read replica', () => {
  it('serves lists while it works and follows, and the primary otherwise', {
    timeout: 120_000,
  }, async ({ folder, log }) => {
    const pair = await startStandbyPair(folder)
    const primary = openDatabase({ url: pair.primary.url, maxPoolSize: 2, logger: log })
    const lists = openListReads({
      ...{ primary, replicaUrl: pair.standby().url, maxPoolSize: 2, logger: log },
      ...{ lagSecondsMax: 2, clock: systemClock },
    })
    const portOf = async () => {
      const { rows } = await lists.db.execute<{ port: number }>(sql`select inet_server_port() port`)
      return String(rows[0]?.port)
    }
    const ports = [pair.standby(), pair.primary].map(({ url }) => new URL(url).port)
    const [standbyPort, primaryPort] = ports
    const isServedBy = (port: string | undefined) =>
      eventually(async () => (await portOf()) === port)
    try {
      await isServedBy(standbyPort)
      expect(lists.replica?.fault).toBeUndefined()
      const onPrimary = (statement: string) => runOn(pair.primary.url, statement)

      // It stays in use while the primary writes nothing.
      await onPrimary('create table kept (n int)')
      await isServedBy(standbyPort)

      // It replays nothing, and is too far behind once something is written.
      await runOn(pair.standby().url, 'select pg_wal_replay_pause()')
      await onPrimary('insert into kept values (1)')
      await isServedBy(primaryPort)
      expect(lists.replica?.fault?.message).toContain('more than 2 s behind')
      await runOn(pair.standby().url, 'select pg_wal_replay_resume()')
      await isServedBy(standbyPort)

      // A table whose migration has not arrived is read from the primary; wrong queries fail.
      await runOn(pair.standby().url, 'select pg_wal_replay_pause()')
      await onPrimary('create table added as select 7 as n')
      const { rows } = await lists.db.execute(sql`select n from added`)
      expect(rows).toEqual([{ n: 7 }])
      await runOn(pair.standby().url, 'select pg_wal_replay_resume()')
      await isServedBy(standbyPort)
      await expect(lists.pool.query('select 1 / 0')).rejects.toThrow('division by zero')
      expect(await portOf()).toBe(standbyPort)

      await pair.stopStandby()
      expect(await portOf()).toBe(primaryPort)
      expect(lists.replica?.fault).toBeDefined()
      await pair.restartStandby()
      await isServedBy(standbyPort)

      await runOn(pair.standby().url, 'select pg_promote()')
      await isServedBy(primaryPort)
      expect(lists.replica?.fault?.message).toContain('no standby')
    } finally {
      await lists.close()
      await primary.close()
      await pair.stop()
    }
  })
})
