import { afterEach, describe, expect } from 'vitest'

import { openActivities } from '#api/activities/activity-store.ts'
import { activitiesPlugin } from '#api/activities/routes.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { activityTables } from '#shared/db/schema/activities.ts'
import { it } from '#test/support/services.ts'
import { openV1App, type V1App } from '#test/support/v1-app.ts'

const open: V1App[] = []

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close()
})

async function openSurface(database: Database) {
  const activities = openActivities(database.db, activityTables(''))
  const surface = await openV1App(database, [activitiesPlugin({ activities, clock: systemClock })])
  open.push(surface)
  return { ...surface, activities }
}

interface Stored {
  id: string
  object: string
  created_at: number
  activity: Record<string, unknown>
}

describe('recording an activity', () => {
  it('answers 201 with the stored form and its address', async ({ database }) => {
    const { post, call } = await openSurface(database)
    const answer = await post('/activities', {
      type: 'Create',
      object: 'doc:1',
      'x:note': { b: 2, a: 1 },
    })
    expect(answer.status).toBe(201)
    const stored = (await answer.json()) as Stored
    expect(stored.id).toMatch(/^act_/)
    expect(stored.activity).toMatchObject({
      id: stored.id,
      type: 'Create',
      object: 'doc:1',
      actor: expect.stringMatching(/^key:key_/),
    })
    expect(JSON.stringify(stored.activity['x:note'])).toBe('{"b":2,"a":1}')
    expect(answer.headers.get('location')).toBe(`/v1/activities/${stored.id}`)
    expect(await (await call(`/activities/${stored.id}`)).json()).toEqual(stored)
  })

  it("is idempotent by the client's id: the same activity gets 200, a different one 409", async ({
    database,
  }) => {
    const { post, call } = await openSurface(database)
    const activity = { id: 'mine/1', type: 'Like', object: 'doc:1' }
    const first = await post('/activities', activity)
    const again = await post('/activities', { object: 'doc:1', type: 'Like', id: 'mine/1' })
    expect([first.status, again.status]).toEqual([201, 200])
    const types = [first, again].map(({ headers }) => headers.get('content-type'))
    expect(new Set(types)).toEqual(new Set(['application/json; charset=utf-8']))
    expect(await again.json()).toEqual(await first.json())
    const other = await post('/activities', { ...activity, object: 'doc:2' })
    expect(other.status).toBe(409)
    expect(await other.json()).toMatchObject({
      error: { param: 'id', code: 'activity_already_exists' },
    })
    expect((await call(`/activities/${encodeURIComponent('mine/1')}`)).status).toBe(200)
  })

  it('happens once when the same activity is sent twenty times at once', async ({ database }) => {
    const { post, call } = await openSurface(database)
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => post('/activities', { id: 'a', type: 'Like' })),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array(19).fill(200), 201])
    expect(((await (await call('/activities')).json()) as { data: unknown[] }).data).toHaveLength(1)
  })

  it('stores a batch whole or not at all', async ({ database }) => {
    const { post, call } = await openSurface(database)
    await post('/activities', { id: 'taken', type: 'Like' })
    const batch = Array.from({ length: 100 }, (_, i) => ({ id: `b${i}`, type: 'View' }))
    const conflict = await post('/activities', {
      activities: [...batch, { id: 'taken', type: 'Dislike' }],
    })
    expect(conflict.status).toBe(409)
    expect(await conflict.json()).toMatchObject({ error: { param: 'activities[100].id' } })
    expect((await call('/activities/b0')).status).toBe(404)
    const stored = await post('/activities', { activities: batch })
    expect(stored.status).toBe(201)
    expect(stored.headers.get('content-type')).toBe('application/json; charset=utf-8')
    expect(((await stored.json()) as { data: Stored[] }).data.map(({ id }) => id)).toEqual(
      batch.map(({ id }) => id),
    )
  })

  it('names the place of a conflict in the collection that was sent', async ({ database }) => {
    const { post } = await openSurface(database)
    await post('/activities', { id: 'taken', type: 'Like' })
    const items = [{ type: 'View' }, { id: 'taken', type: 'Dislike' }]
    for (const [name, type] of [
      ['orderedItems', 'OrderedCollection'],
      ['items', 'Collection'],
    ] as const) {
      const conflict = await post('/activities', { type, [name]: items })
      expect([conflict.status, await conflict.json()]).toMatchObject([
        409,
        { error: { param: `${name}[1].id` } },
      ])
    }
  })

  it('stores and finds names that are longer than an index allows', async ({ database }) => {
    const { post, call } = await openSurface(database)
    const long = (end: string) =>
      Array.from({ length: 1000 }, (_, i) => String.fromCodePoint(0x4e00 + ((i * 7919) % 20_000)))
        .join('')
        .concat(end)
    for (const end of ['one', 'two']) {
      const answer = await post('/activities', {
        id: end,
        type: 'Like',
        actor: long(end),
        object: long(end),
      })
      expect(answer.status).toBe(201)
    }
    for (const field of ['actor', 'object']) {
      const query = `${field}=${encodeURIComponent(long('two'))}`
      const { data } = (await (await call(`/activities?${query}`)).json()) as { data: Stored[] }
      expect(data.map(({ id }) => id)).toEqual(['two'])
    }
  })

  it('creates the partition of the month if it is missing', async ({ database }) => {
    const { post, call } = await openSurface(database)
    const { rows } = await database.pool.query<{ name: string }>(
      "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'activities'::regclass",
    )
    for (const { name } of rows) await database.pool.query(`drop table ${name}`)
    expect((await post('/activities', { id: 'first', type: 'Like' })).status).toBe(201)
    expect((await call('/activities/first')).status).toBe(200)
  })

  it('accepts the media types of Activity Streams', async ({ database }) => {
    const { call } = await openSurface(database)
    for (const type of [
      'application/activity+json',
      'application/ld+json; profile="https://www.w3.org/ns/activitystreams"',
    ]) {
      const answer = await call('/activities', {
        method: 'POST',
        body: '{"type":"Like"}',
        headers: { 'content-type': type },
      })
      expect(answer.status).toBe(201)
      const complex = await call('/activities', {
        method: 'POST',
        body: `{"activities":[${'{},'.repeat(250_000)}{}]}`,
        headers: { 'content-type': type },
      })
      expect(await complex.json()).toMatchObject({
        error: { param: 'activities', code: 'json_too_complex' },
      })
    }
  })

  it('needs the scope for it, as reading needs its own', async ({ database }) => {
    const { post, call, newKey } = await openSurface(database)
    const reader = await newKey('org-one', ['activities:read'])
    expect((await post('/activities', { type: 'Like' }, reader)).status).toBe(403)
    expect((await call('/activities', {}, reader)).status).toBe(200)
    expect(
      (await call('/activities', {}, await newKey('org-one', ['activities:write']))).status,
    ).toBe(403)
  })

  it('refuses malformed JSON and a faulty item, naming its place', async ({ database }) => {
    const { call, post } = await openSurface(database)
    const broken = await call('/activities', {
      method: 'POST',
      body: '{"type":',
      headers: { 'content-type': 'application/json' },
    })
    expect(broken.status).toBe(400)
    const faulty = await post('/activities', { activities: [{ type: 'Like' }, { type: '' }] })
    expect([faulty.status, await faulty.json()]).toMatchObject([
      400,
      { error: { param: 'activities[1].type' } },
    ])
  })
})

describe('reading activities', () => {
  async function withFive(database: Database) {
    const surface = await openSurface(database)
    const activities = [1, 2, 3, 4, 5].map((day) => ({
      id: `a${day}`,
      type: day % 2 === 1 ? 'Like' : 'View',
      actor: { id: `user:${day % 3}`, name: 'somebody' },
      object: 'doc:1',
      published: `2026-01-0${day}T12:00:00Z`,
    }))
    await surface.post('/activities', { activities })
    const ids = async (query: string) =>
      ((await (await surface.call(`/activities?${query}`)).json()) as { data: Stored[] }).data.map(
        ({ id }) => id,
      )
    return { ...surface, ids }
  }

  it('shows the newest first and filters by each field', async ({ database }) => {
    const { ids } = await withFive(database)
    expect(await ids('')).toEqual(['a5', 'a4', 'a3', 'a2', 'a1'])
    expect(await ids('order=asc&limit=2')).toEqual(['a1', 'a2'])
    expect(await ids('type=Like')).toEqual(['a5', 'a3', 'a1'])
    expect(await ids('actor=user:1')).toEqual(['a4', 'a1'])
    expect(await ids('object=doc:2')).toEqual([])
    expect(await ids('since=2026-01-02T12:00:00Z&until=2026-01-04T12:00:00Z')).toEqual(['a3', 'a2'])
  })

  it('pages by the last id', async ({ database }) => {
    const { ids, call } = await withFive(database)
    expect(await ids('limit=2&after=a4')).toEqual(['a3', 'a2'])
    expect(await (await call('/activities?limit=2&after=a2')).json()).toMatchObject({
      first_id: 'a1',
      last_id: 'a1',
      has_more: false,
    })
    expect(await (await call('/activities?limit=2')).json()).toMatchObject({
      first_id: 'a5',
      last_id: 'a4',
      has_more: true,
    })
  })

  it('shows nothing to another organization', async ({ database }) => {
    const { call, newKey } = await withFive(database)
    const other = await newKey('org-two')
    expect(await (await call('/activities', {}, other)).json()).toMatchObject({
      data: [],
      first_id: null,
      has_more: false,
    })
    expect((await call('/activities/a1', {}, other)).status).toBe(404)
    expect((await call('/activities?after=a1', {}, other)).status).toBe(400)
  })

  it.for([
    ['limit=101', 'limit'],
    ['limit=0', 'limit'],
    ['order=up', 'order'],
    ['since=2026-02-30T00:00:00Z', 'since'],
    ['until=0000-01-01T00:00:00Z', 'until'],
    ['since=yesterday', 'since'],
    ['colour=red', 'colour'],
  ])('refuses %s, naming the parameter', async ([query, param], { database }) => {
    const { call } = await openSurface(database)
    const answer = await call(`/activities?${query}`)
    expect([answer.status, await answer.json()]).toMatchObject([400, { error: { param } }])
  })
})
