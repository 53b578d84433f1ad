import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

import { sql } from 'drizzle-orm'
import { describe, expect } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { openDatabase } from '#shared/db/client.ts'
import { openListReads } from '#shared/db/replica.ts'
import { eventually } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'
import { runOn, startStandbyPair } from '#test/support/standby.ts'
import { apiEnv, commonEnv, startTiers } from '#test/support/tiers.ts'

const LISTS = ['files', 'jobs', 'batches', 'activities', 'fine_tuning/jobs', 'chat/completions']
const LISTED = ['files', 'jobs', 'batches', 'fine_tuning_jobs', 'stored_answers', 'usage']
const SCANNED = `select relname from pg_stat_user_tables
  where coalesce(seq_scan, 0) + coalesce(idx_scan, 0) > 0`

describe('a read replica', () => {
  it('serves lists while it works and follows, and the primary otherwise', {
    timeout: 120_000,
  }, async ({ folder, log }) => {
    const pair = await startStandbyPair(folder)
    const [first, second] = [pair.primary, pair.standby()].map(({ url }) => new URL(url).host)
    const url = `postgres://millrace:test@${first},${second}/postgres`
    const primary = openDatabase({ url, maxPoolSize: 2, logger: log })
    const lists = openListReads({
      primary,
      replicaUrl: pair.standby().url,
      maxPoolSize: 2,
      logger: log,
      lagSecondsMax: 2,
      clock: systemClock,
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
      await pair.pauseReplay()
      await onPrimary('insert into kept values (1)')
      await isServedBy(primaryPort)
      expect(lists.replica?.fault?.message).toContain('more than 2 s behind')
      await pair.resumeReplay()
      await isServedBy(standbyPort)

      // A table whose migration has not arrived is read from the primary; wrong queries fail.
      await pair.pauseReplay()
      await onPrimary('create table added as select 7 as n')
      const { rows } = await lists.db.execute(sql`select n from added`)
      expect(rows).toEqual([{ n: 7 }])
      await pair.resumeReplay()
      await isServedBy(standbyPort)
      await expect(lists.pool.query('select 1 / 0')).rejects.toThrow('division by zero')
      expect(await portOf()).toBe(standbyPort)

      await pair.stopStandby()
      expect(await portOf()).toBe(primaryPort)
      expect(lists.replica?.fault).toBeDefined()
      await pair.restartStandby()
      await isServedBy(standbyPort)

      // The primary is lost, and the replica takes its place.
      await pair.primary.stop()
      await runOn(pair.standby().url, 'select pg_promote()')
      await eventually(async () => (await portOf().catch(() => '')) === standbyPort)
      await eventually(() => lists.replica?.fault?.message.includes('not a standby') === true)
      await primary.pool.query('insert into kept values (2)')
      expect((await lists.pool.query('select n from kept order by n')).rows).toEqual([
        { n: 1 },
        { n: 2 },
      ])
    } finally {
      await lists.close()
      await primary.close()
      await pair.stop()
    }
  })

  it('serves the lists of an API process, which reports when it fails', {
    timeout: 120_000,
  }, async ({ folder, redisUrl, keyPrefix }) => {
    const pair = await startStandbyPair(folder)
    const place = { databaseUrl: pair.primary.url, redisUrl, keyPrefix, folder }
    const env = { DATABASE_REPLICA_URL: pair.standby().url, MILLRACE_REPLICA_LAG: '10m' }
    const tiers = await startTiers({ ...place, env })
    const call = (path: string, init: RequestInit = {}) =>
      fetch(`${tiers.url}${path}`, {
        ...init,
        headers: { authorization: `Bearer ${tiers.apiKey}` },
      })
    const idsOf = async (path: string): Promise<string[]> => {
      const answer = await call(path)
      expect(answer.status, path).toBe(200)
      return ((await answer.json()) as { data: { id: string }[] }).data.map(({ id }) => id)
    }
    const upload = async () => {
      const body = new FormData()
      body.set('purpose', 'user_data')
      body.set('file', new Blob(['{}']), 'some.jsonl')
      return ((await (await call('/v1/files', { method: 'POST', body })).json()) as { id: string })
        .id
    }
    const record = async () => {
      const headers = {
        authorization: `Bearer ${tiers.apiKey}`,
        'content-type': 'application/json',
      }
      const init = { method: 'POST', headers, body: '{"type":"Create"}' }
      return ((await (await fetch(`${tiers.url}/v1/activities`, init)).json()) as { id: string }).id
    }
    const readiness = async () =>
      (await (await call('/readyz')).json()) as { status: string; checks: Record<string, string> }
    const doctor = () =>
      spawnSync(
        process.execPath,
        [join(import.meta.dirname, '../../../launcher/cli.ts'), 'doctor'],
        {
          env: { ...process.env, ...commonEnv(place), ...apiEnv(place.databaseUrl, 1), ...env },
          encoding: 'utf8',
        },
      ).stdout
    try {
      const checks = { database_replica: 'ok' }
      await eventually(async () => (await readiness()).checks.database_replica === 'ok')
      expect(await readiness()).toMatchObject({ status: 'ready', checks })
      expect(doctor()).toContain('✓  Read replica: at most 600 s behind')

      for (const list of LISTS) await idsOf(`/v1/${list}`)
      const day = Math.floor(Date.now() / 1000) - 86_400
      expect((await call(`/v1/usage?start_time=${day}`)).status).toBe(200)
      // Only lists read these tables there, and the replay of writes counts as no scan.
      await eventually(async () => {
        const rows = await runOn(pair.standby().url, SCANNED)
        return LISTED.every((name) => JSON.stringify(rows).includes(`"${name}"`))
      })

      const [firstFile, firstActivity] = [await upload(), await record()]
      await eventually(async () => (await idsOf('/v1/files')).includes(firstFile))
      await eventually(async () => (await idsOf('/v1/activities')).includes(firstActivity))
      await pair.pauseReplay()
      const id = await upload()
      expect((await call(`/v1/files/${id}`)).status).toBe(200)
      expect(await idsOf('/v1/files')).toEqual([firstFile])
      // Rows behind one that has not arrived are listed all the same.
      expect(await idsOf(`/v1/files?after=${id}`)).toEqual([firstFile])
      expect(await idsOf(`/v1/activities?after=${await record()}`)).toContain(firstActivity)
      await pair.resumeReplay()
      await eventually(async () => (await idsOf('/v1/files')).includes(id))

      await pair.stopStandby()
      for (const list of LISTS) await idsOf(`/v1/${list}`)
      expect(await idsOf('/v1/files')).toEqual([id, firstFile])
      await eventually(async () => (await readiness()).status === 'degraded')
      expect(await readiness()).toMatchObject({ checks: { database_replica: 'failed' } })
      const metrics = await (await fetch(`${tiers.metricsUrl}/metrics`)).text()
      expect(metrics).toContain('millrace_dependency_up{dependency="database_replica"} 0')
      expect(doctor()).toContain('✗  Read replica: ')
    } finally {
      await tiers.stop()
      await pair.stop()
    }
  })
})
