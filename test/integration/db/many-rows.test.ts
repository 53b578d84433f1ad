import { randomUUID } from 'node:crypto'

import { describe, expect } from 'vitest'

import { openActivities } from '#api/activities/activity-store.ts'
import { cleanUp } from '#api/auth/cleanup.ts'
import { lowerSessionsOfFactor } from '#api/auth/sessions/sessions.ts'
import { findUsersChangingTo } from '#api/auth/users/user-store.ts'
import { openBatches } from '#api/batches/batch-store.ts'
import { openBatchLines } from '#api/batches/line-store.ts'
import { openFiles } from '#api/files/file-store.ts'
import { activityTables } from '#shared/db/schema/activities.ts'
import { batchTables } from '#shared/db/schema/batches.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { startServer } from '#test/integration/auth/support/server.ts'
import { plansOf, type StatementPlan } from '#test/support/query-plans.ts'
import { it } from '#test/support/services.ts'

/** The conditions that the plans pass to indexes. */
function conditionsBy(plans: readonly StatementPlan[]): Record<string, string | undefined> {
  const found = plans.flatMap(({ nodes }) =>
    nodes.flatMap((node) => {
      const name = node['Index Name']
      return name === undefined ? [] : [[name, node['Index Cond']] as const]
    }),
  )
  return Object.fromEntries(found)
}

describe('among very many users, an index finds', () => {
  it('a user by address or number', async () => {
    const server = await startServer({})
    const { store } = server.services
    const plans = await plansOf(server.database.pool, async () => {
      await findUsersChangingTo(store, { kind: 'email', email: 'new@example.com' })
      await findUsersChangingTo(store, { kind: 'phone', phone: '4915100000000' })
    })
    expect(conditionsBy(plans)).toEqual({
      users_email_change: expect.stringContaining('email_change'),
      users_phone_change: expect.stringContaining('phone_change'),
    })
    await server.close()
  })

  it('the sessions that rest on a second factor', async () => {
    const server = await startServer({})
    const { store } = server.services
    const plans = await plansOf(server.database.pool, () =>
      lowerSessionsOfFactor(store, { id: randomUUID(), userId: randomUUID() }),
    )
    expect(conditionsBy(plans)).toEqual({ sessions_user: expect.stringContaining('user_id') })
    await server.close()
  })

  it('the rows that the clean-up deletes', async () => {
    const server = await startServer({})
    const plans = await plansOf(server.database.pool, () => cleanUp(server.services))
    expect(conditionsBy(plans)).toMatchObject({
      one_time_tokens_expires: expect.stringContaining('expires_at'),
      flow_states_created: expect.stringContaining('created_at'),
      mfa_challenges_expires: expect.stringContaining('expires_at'),
      mfa_factors_unverified: expect.stringContaining('created_at'),
      refresh_tokens_revoked: expect.stringContaining('revoked_at'),
    })
    await server.close()
  })
})

describe('among very many lines of batches', () => {
  it('a lease is prolonged by reading only the running lines', async ({ database }) => {
    const batches = openBatches(database.db, batchTables(''))
    const lines = openBatchLines(database.db, batchTables(''))
    const plans = await plansOf(database.pool, async () => {
      await batches.renew(randomUUID(), 60)
      await lines.renew(randomUUID(), 60)
    })
    const names = Object.keys(conditionsBy(plans))
    expect(names).toContain('batches_open')
    expect(names).toContain('batch_lines_running')
  })

  it('the next ones are handed out without sorting all that are left', async ({ database }) => {
    const lines = openBatchLines(database.db, batchTables(''))
    const room = { limit: 8, perOrganizationMax: 8, inFlight: {} }
    const [claim] = await plansOf(database.pool, () => lines.claim(randomUUID(), 60, room))
    expect(Object.keys(conditionsBy([claim as StatementPlan]))).toContain('batch_lines_open')
    const sorted = claim?.nodes.flatMap((node) => node['Sort Key'] ?? [])
    expect(sorted?.filter((key) => key.endsWith('line'))).toEqual([])
  })
})

describe('among very many activities', () => {
  const activity = (id: string) => ({
    id,
    type: 'View',
    actorId: undefined,
    objectId: undefined,
    content: {},
    publishedMs: Date.now(),
    digest: Buffer.alloc(32),
  })

  it('one is found by the time of its recording, and a page begins where the last one ended', async ({
    database,
  }) => {
    const activities = openActivities(database.db, activityTables(''))
    const options = { nowMs: Date.now(), pathOf: String }
    await activities.record('org-1', ['a', 'b', 'c'].map(activity), options)
    const [find] = await plansOf(database.pool, () => activities.find('org-1', 'b'))
    const months = find?.nodes.filter((node) => /^activities_\d/.test(node['Relation Name'] ?? ''))
    expect(months?.length).toBeGreaterThan(0)
    for (const month of months ?? []) expect(month['Index Cond']).toContain('created_at =')
    for (const order of ['asc', 'desc'] as const) {
      const page = { order, limit: 1, after: 'b' }
      const [, list] = await plansOf(database.pool, () =>
        activities.list({ organizationId: 'org-1', reservesMemory: true }, page),
      )
      const conditions = list?.nodes.flatMap((node) => node['Index Cond'] ?? [])
      expect(conditions?.length).toBeGreaterThan(0)
      for (const condition of conditions ?? []) expect(condition).toContain('ROW(published, id)')
    }
  })
})

describe('of very many files', () => {
  it.for([
    { which: 'whose time is over', expires: 'now()', deleted: 'null' },
    { which: 'of a deleted organization', expires: 'null', deleted: 'now()' },
  ])('those $which are forgotten in parts, with all their bytes', async (given, { database }) => {
    const { pool } = database
    await pool.query(`
      insert into organizations (id, name, deleted_at) values ('org-1', 'One', ${given.deleted});
      insert into organization_storage values ('org-1', 36003);
      insert into files (id, organization_id, object_key, filename, purpose, bytes, sha256, expires_at)
        select 'file-' || n, 'org-1', 'o/' || n, 'a.txt', 'user_data', 3, sha256('x'), ${given.expires}
        from generate_series(1, 12001) n;
      create table parts (rows integer);
      create function note_part() returns trigger language plpgsql as
        $$ begin insert into parts select count(*) from gone; return null; end $$;
      create trigger note_parts after delete on files referencing old table as gone
        for each statement execute function note_part()`)
    const files = openFiles(database.db, fileTables(''))
    await files.deleteExpired()
    await files.deleteOfDeletedOrganizations()
    const { rows } = await pool.query(
      'select sum(rows)::int as deleted, max(rows) as most from parts',
    )
    expect(rows[0].deleted).toBe(12_001)
    expect(rows[0].most).toBeLessThan(10_000)
    expect(await files.usedBytes('org-1')).toBe(0)
  })
})
