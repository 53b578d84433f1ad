import { afterEach, beforeEach, describe, expect } from 'vitest'

import { openActivities } from '#api/activities/activity-store.ts'
import { ownActivity } from '#api/activities/own-activity.ts'
import { activitiesPlugin } from '#api/activities/routes.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { activityTables } from '#shared/db/schema/activities.ts'
import { stayInOne } from '#test/support/boundaries.ts'
import { it } from '#test/support/services.ts'
import { openV1App, type V1App } from '#test/support/v1-app.ts'

const open: V1App[] = []
const DAY_MS = 86_400_000

// The partitions of a month are compared with those of the present one.
beforeEach(() => stayInOne('day'))

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close()
})

interface Page {
  data: { id: string }[]
  last_id: string
  has_more: boolean
  error: { param: string; code: string }
}

async function openSurface(database: Database, bytesMax?: number) {
  const options = bytesMax === undefined ? {} : { bytesMax }
  const activities = openActivities(database.db, activityTables(''), options)
  const surface = await openV1App(database, [activitiesPlugin({ activities, clock: systemClock })])
  open.push(surface)
  const list = async (query: string) =>
    (await (await surface.call(`/activities?${query}`)).json()) as Page
  return { ...surface, activities, list }
}

const partitionsOf = async ({ pool }: Database): Promise<string[]> => {
  const { rows } = await pool.query<{ name: string }>(
    "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'activities'::regclass order by 1",
  )
  return rows.map(({ name }) => name)
}

/** The names of the partitions of this month and of those after it. */
async function namesAhead({ pool }: Database, months: number): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `select 'activities_' || to_char(date_trunc('month', now() at time zone 'utc')
       + make_interval(months => i), 'YYYY_MM') as name from generate_series(0, $1) as i`,
    [months],
  )
  return rows.map(({ name }) => name)
}

const bytesOf = async ({ pool }: Database): Promise<{ counted: number; actual: number }> => {
  const { rows } = await pool.query(`
    select (select coalesce(sum(bytes), 0) from activity_bytes)::int as counted,
      (select coalesce(sum(octet_length(activity::text) + 512), 0) from activities
        where activity ->> 'generator' is distinct from 'millrace')::int as actual`)
  return rows[0]
}

describe('the record of activities', () => {
  it('refuses more of an organization whose own have their bytes, and counts those', async ({
    database,
  }) => {
    const { post, activities, newKey } = await openSurface(database, 64_000)
    const note = 'x'.repeat(20_000)
    const send = async (id: string, more = {}) => {
      const answer = await post('/activities', { id, type: 'Like', note, ...more })
      return { status: answer.status, code: ((await answer.json()) as Page).error?.code }
    }
    for (const id of ['a', 'b', 'c', 'd']) expect(await send(id)).toMatchObject({ status: 201 })
    const { counted, actual } = await bytesOf(database)
    expect(counted).toBe(actual)
    const full = { status: 400, code: 'storage_limit_exceeded' }
    expect(await send('e')).toEqual(full)
    const mixed = { activities: [{ id: 'a', type: 'Like', note }, { type: 'Like' }] }
    expect((await post('/activities', mixed)).status).toBe(400)
    expect(await bytesOf(database)).toEqual({ counted, actual })
    // Those that are here answer as before, and other organizations have room of their own.
    expect(await send('a')).toMatchObject({ status: 200 })
    expect(await send('a', { summary: 'other' })).toMatchObject({ status: 409 })
    const other = await newKey('org-two')
    expect((await post('/activities', { type: 'Like' }, other)).status).toBe(201)
    // The platform records its own all the same, without a count.
    const event = { type: 'Create', event: 'key.created', actor: 'key:x', requestId: undefined }
    const object = { id: 'key:y', type: 'Key' }
    const own = ownActivity({ ...event, object, organizationId: 'org-one', atMs: Date.now() })
    await activities.recordOwn([own])
    expect(await activities.find('org-one', own.id)).toBeDefined()
    expect((await bytesOf(database)).counted).toBe((await bytesOf(database)).actual)
    await activities.maintain(30, Date.now() + 31 * DAY_MS)
    expect(await bytesOf(database)).toEqual({ counted: 0, actual: 0 })
    expect(await send('e')).toMatchObject({ status: 201 })
  })

  it('deletes expired activities, whose ids can be used again', async ({ database }) => {
    const { post, activities, call } = await openSurface(database)
    await post('/activities', { id: 'old', type: 'Like' })
    await activities.maintain(30, Date.now() + 29 * DAY_MS)
    expect((await call('/activities/old')).status).toBe(200)
    await activities.maintain(undefined, Date.now() + 3650 * DAY_MS)
    expect((await call('/activities/old')).status).toBe(200)
    await activities.maintain(30, Date.now() + 31 * DAY_MS)
    expect((await call('/activities/old')).status).toBe(404)
    expect((await post('/activities', { id: 'old', type: 'View' })).status).toBe(201)
  })

  it('has the partitions of the next three months, so that a new month needs no migration', async ({
    database,
  }) => {
    const { activities } = await openSurface(database)
    const ahead = await namesAhead(database, 3)
    for (const name of await partitionsOf(database)) await database.pool.query(`drop table ${name}`)
    await activities.maintain(undefined, Date.now())
    expect(await partitionsOf(database)).toEqual(ahead)
    // Again, and by several processes at once, changes nothing.
    await Promise.all([1, 2, 3].map(() => activities.maintain(undefined, Date.now())))
    expect(await partitionsOf(database)).toEqual(ahead)
    const [month = ''] = ahead.slice(1)
    const first = `${month.slice(-7).replace('_', '-')}-01T00:00:00Z`
    const last = new Date(Date.parse(first) - 1).toISOString()
    for (const [at, name] of [
      [last, ahead[0]],
      [first, month],
    ] as const) {
      await database.pool.query(
        `insert into activities (organization_id, id, type, published, created_at, activity)
         values ('org-one', $1::text, 'Like', $2, $2, '{}')`,
        [at, new Date(at)],
      )
      const { rows } = await database.pool.query(
        'select tableoid::regclass::text as name from activities where id = $1',
        [at],
      )
      expect(rows).toEqual([{ name }])
    }
  })

  it('stores nothing of a batch with faulty items, and names the first of them', async ({
    database,
  }) => {
    const { post, list } = await openSurface(database)
    const good = (i: number) => ({ id: `good-${i}`, type: 'View' })
    const faults: readonly [object, string][] = [
      [{ type: '' }, 'type'],
      [{ type: 'View', published: 'yesterday' }, 'published'],
      [{ type: 'View', id: 'good-0', object: 'doc:2' }, 'id'],
    ]
    for (const [fault, field] of faults) {
      const activities = [0, 1, 2, 3].map(good)
      const sent = { activities: [...activities, fault, good(5), { type: 7 }] }
      // A conflict is only looked for among items that are sound.
      if (field === 'id') sent.activities.pop()
      const answer = await post('/activities', sent)
      expect(answer.status).toBeGreaterThanOrEqual(400)
      const { error } = (await answer.json()) as Page
      expect(error.param).toBe(`activities[4].${field}`)
      expect((await list('')).data).toEqual([])
    }
  })

  it.for(['desc', 'asc'] as const)(
    'is read page by page (%s) without loss or repetition while others write',
    async (order, { database }) => {
      const { post, list } = await openSurface(database)
      const wanted = Array.from({ length: 60 }, (_, i) => `first-${i}`)
      // Many activities of the same moment: the cursor must distinguish them.
      const published = (i: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, i >> 3)).toISOString()
      const activities = wanted.map((id, i) => ({ id, type: 'View', published: published(i) }))
      await post('/activities', { activities })
      let isReading = true
      let written = 0
      const writing = [1, 2, 3].map(async (writer) => {
        for (let i = 0; isReading && i < 500; i += 1) {
          const id = `later-${writer}-${i}`
          const answer = await post('/activities', { id, type: 'View' })
          expect(answer.status).toBe(201)
          written += 1
        }
      })
      await expect.poll(() => written).toBeGreaterThan(3)
      const seen: string[] = []
      let after = ''
      for (let pages = 0; pages < 500; pages += 1) {
        const page = await list(`order=${order}&limit=7${after}`)
        seen.push(...page.data.map(({ id }) => id))
        if (seen.length >= 60 && seen.filter((id) => id.startsWith('first')).length === 60) break
        if (!page.has_more) break
        after = `&after=${encodeURIComponent(page.last_id)}`
      }
      isReading = false
      await Promise.all(writing)
      expect(new Set(seen).size).toBe(seen.length)
      const first = seen.filter((id) => id.startsWith('first'))
      expect(first.toSorted()).toEqual(wanted.toSorted())
    },
  )
})
