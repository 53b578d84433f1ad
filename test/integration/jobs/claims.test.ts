import { randomUUID } from 'node:crypto'

import { sql } from 'drizzle-orm'
import { expect } from 'vitest'

import { JobStore } from '#api/jobs/job-store.ts'
import type { Database } from '#shared/db/client.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

const MEBIBYTE = 1024 * 1024

/** A store with one due job of each organization per request. */
async function openStore({ db }: Database, requests: Readonly<Record<string, readonly Buffer[]>>) {
  const ids = Object.keys(requests)
  const rows = ids.map((id) => ({ id, name: id }))
  await db.insert(organizationTables('').organizations).values(rows)
  const options = { db, tables: jobTables(''), retentionDays: 30, announce: async () => {} }
  const store = new JobStore(options)
  const createdAt = new Date(Date.now() - 1000)
  for (const organizationId of ids) {
    for (const [index, request] of (requests[organizationId] ?? []).entries()) {
      const job = {
        organizationId,
        id: `${organizationId}-${index}`,
        endpoint: '/v1/completions',
        contentType: 'application/json',
        request,
        priority: 1,
        createdAt,
        notBefore: createdAt,
        expiresAt: new Date(Date.now() + 3_600_000),
      }
      await store.create(job, { openMax: 2000, openBytesMax: 2 ** 40, onlyStored: false })
    }
  }
  return store
}

it('claims no more jobs of an organization than it may have, and large requests without their content', async ({
  database,
}) => {
  const requests = [Buffer.alloc(2 * MEBIBYTE, 'a'), Buffer.from('small')] as const
  const store = await openStore(database, { 'org-one': [requests[0]], 'org-two': [requests[1]] })
  const lease = randomUUID()
  const [other, ...more] = await store.claim(lease, 60, {
    limit: 8,
    perOrganizationMax: 1,
    inFlight: { 'org-one': 1 },
  })
  expect([other?.organizationId, other?.request?.toString(), more]).toEqual([
    'org-two',
    'small',
    [],
  ])
  const [large] = await store.claim(lease, 60, { limit: 8, perOrganizationMax: 8, inFlight: {} })
  if (large === undefined) throw new Error('the job was not claimed')
  expect(large).toMatchObject({ organizationId: 'org-one', request: null })
  expect((await store.readRequest(large)).equals(requests[0])).toBe(true)
})

it('claims waiting jobs in the order of their changed priorities', async ({ database }) => {
  const three = Array.from({ length: 3 }, () => Buffer.from('x'))
  const store = await openStore(database, { 'org-one': three, 'org-two': [] })
  const lease = randomUUID()
  const next = async () =>
    (await store.claim(lease, 60, { limit: 1, perOrganizationMax: 8, inFlight: {} }))[0]?.id
  expect(await store.prioritize('org-one', 'org-one-0', 'flex')).toBe(true)
  expect(await store.prioritize('org-one', 'org-one-2', 'priority')).toBe(true)
  expect(await store.prioritize('org-two', 'org-one-1', 'priority')).toBe(false)
  expect([await next(), await next(), await next()]).toEqual([
    'org-one-2',
    'org-one-1',
    'org-one-0',
  ])
  expect(await store.prioritize('org-one', 'org-one-0', 'default')).toBe(false)
})

it('claims jobs of the organizations with the fewest in flight first', async ({ database }) => {
  const four = Array.from({ length: 4 }, () => Buffer.from('x'))
  const store = await openStore(database, { 'org-one': four, 'org-two': four })
  const claimed = await store.claim(randomUUID(), 60, {
    limit: 4,
    perOrganizationMax: 8,
    inFlight: { 'org-one': 2 },
  })
  const count = (id: string) => claimed.filter((job) => job.organizationId === id).length
  expect([count('org-one'), count('org-two')]).toEqual([1, 3])
})

it('cancels open jobs of deleted organizations, and of banned users and owners alone', async ({
  database,
}) => {
  const one = [Buffer.from('x')]
  const names = ['kept', 'deleted', 'owned', 'of-a-user'] as const
  const store = await openStore(database, Object.fromEntries(names.map((name) => [name, one])))
  const [owner, user, other] = [randomUUID(), randomUUID(), randomUUID()]
  const { db } = database
  await db.execute(sql`insert into users (id, banned_until, created_at, updated_at) values
    (${owner}, now() + interval '1 hour', now(), now()),
    (${user}, now() + interval '1 hour', now(), now()),
    (${other}, now() - interval '1 hour', now(), now())`)
  await db.execute(sql`update organizations set deleted_at = now() where id = 'deleted'`)
  await db.execute(sql`update organizations set personal_user_id = ${owner} where id = 'owned'`)
  await db.execute(sql`update jobs set user_id = ${user} where id = 'of-a-user-0'`)
  await db.execute(sql`update jobs set user_id = ${other} where id = 'kept-0'`)
  await store.settle()
  const states = await Promise.all(
    names.map(async (name) => (await store.find(name, `${name}-0`))?.state),
  )
  expect(states).toEqual(['queued', 'cancelled', 'cancelled', 'cancelled'])
})
