import { expect } from 'vitest'

import { JobStore } from '#api/jobs/job-store.ts'
import type { Database } from '#shared/db/client.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { jobTables } from '#shared/db/schema/jobs.ts'
import {
  type ModelRow,
  NEW_ROW,
  type RowEvent,
  type Runner,
  stepRow,
} from '#test/support/job-model.ts'
import { createRandom } from '#test/support/random.ts'
import { it } from '#test/support/services.ts'

type JobAnnouncement = ConstructorParameters<typeof JobStore>[0]['announce']

async function openStore({ db }: Database, announce: JobAnnouncement = async () => {}) {
  const tables = jobTables('')
  const organizationId = await ensureDefaultOrganization(db, tables as never)
  return { organizationId, store: new JobStore({ db, tables, retentionDays: 30, announce }) }
}

function newJob(organizationId: string, id: string) {
  const createdAt = new Date(Date.now() - 1000)
  return {
    id,
    organizationId,
    endpoint: '/v1/completions',
    contentType: 'application/json',
    request: Buffer.from(''),
    priority: 1,
    createdAt,
    notBefore: createdAt,
    expiresAt: new Date(Date.now() + 3_600_000),
  }
}

const SEQUENCES = 30
const STEPS = 12
const LEASES: Readonly<Record<Runner, string>> = {
  a: '00000000-0000-4000-8000-00000000000a',
  b: '00000000-0000-4000-8000-00000000000b',
}
const ROOM = { limit: 1, perOrganizationMax: 1, inFlight: {} }
const RUNNERS = ['a', 'b'] as const
const EVENTS: readonly RowEvent[] = [
  ...RUNNERS.flatMap((by) => [
    ...(['claim', 'claim', 'renew', 'release'] as const).map((type) => ({ type, by })),
    ...(['completed', 'failed', 'cancelled'] as const).map((as) => ({
      type: 'finish' as const,
      by,
      as,
    })),
  ]),
  ...(['cancel', 'settle', 'settle', 'leaseExpires', 'deadline'] as const).map((type) => ({
    type,
  })),
]

it('makes every transition of the model, and no other', async ({ database }) => {
  let announced = 0
  const { store, organizationId } = await openStore(database, async (_tx, jobs) => {
    announced += jobs.length
  })
  const set = (assignment: string) => database.pool.query(`update jobs set ${assignment}`)
  const apply = (id: string, event: RowEvent): Promise<unknown> => {
    switch (event.type) {
      case 'claim':
        return store.claim(LEASES[event.by], 60, ROOM)
      case 'renew':
        return store.renew(LEASES[event.by], 60)
      case 'release':
        return store.release(id, LEASES[event.by], 0)
      case 'finish':
        return store.finish(id, LEASES[event.by], { state: event.as })
      case 'cancel':
        return store.cancel(organizationId, id)
      case 'settle':
        return store.settle()
      case 'leaseExpires':
        return set("lease_until = now() - interval '1 s' where lease_until is not null")
      case 'deadline':
        return set("expires_at = now() - interval '1 s'")
    }
  }
  const random = createRandom()
  for (let sequence = 0; sequence < SEQUENCES; sequence += 1) {
    const id = `job_${sequence}`
    await store.create(newJob(organizationId, id), {
      openMax: 10,
      openBytesMax: 0,
      onlyStored: false,
    })
    announced = 0
    let expected: ModelRow = NEW_ROW
    const path: RowEvent[] = []
    for (let step = 0; step < STEPS; step += 1) {
      const event = EVENTS[Math.floor(random() * EVENTS.length)] as RowEvent
      path.push(event)
      expected = stepRow(expected, event)
      await apply(id, event)
      const found = await store.find(organizationId, id)
      const lease = RUNNERS.find((by) => LEASES[by] === found?.leaseId) ?? null
      const { state, isCancelled } = expected
      // An end by its runner does not say that a client asked for it.
      const seen = {
        state: found?.state,
        lease,
        announced,
        isCancelled: found?.cancelledAt !== null,
      }
      const named = { state, lease: expected.lease, announced: expected.announced, isCancelled }
      expect(seen, JSON.stringify(path)).toEqual(named)
    }
    await database.pool.query('delete from jobs')
  }
}, 60_000)

it('an organization has no more unfinished jobs than allowed, however many it creates at once', async ({
  database,
}) => {
  const { store, organizationId } = await openStore(database)
  // Near the limit and, by one statement, far from it.
  for (const [openMax, expected] of [
    [7, 7],
    [2000, 30],
  ] as const) {
    const made = await Promise.all(
      Array.from({ length: 30 }, (_, at) =>
        store.create(newJob(organizationId, `job_${openMax}_${at}`), {
          openMax,
          openBytesMax: 0,
          onlyStored: true,
        }),
      ),
    )
    expect(made.filter((job) => job === 'full')).toHaveLength(30 - expected)
    const [job] = made.filter((one) => typeof one === 'object')
    expect(job).toMatchObject({ state: 'queued', attempts: 0, metadata: null, startedAt: null })
    await database.pool.query('delete from jobs')
  }
})

it('the requests of unfinished jobs have no more bytes together than allowed', async ({
  database,
}) => {
  const { store, organizationId } = await openStore(database)
  const openBytesMax = 10_000
  const create = (id: string, bytes: number) =>
    store.create(
      { ...newJob(organizationId, id), request: Buffer.alloc(bytes) },
      { openMax: 5000, openBytesMax, onlyStored: false },
    )
  // By one statement while they are small, one at a time near the limit.
  for (const [bytes, expected] of [
    [3, 30],
    [3000, 3],
    [10_001, 0],
  ] as const) {
    const names = Array.from({ length: 30 }, (_, at) => `job_${bytes}_${at}`)
    const made = await Promise.all(names.map((id) => create(id, bytes)))
    expect(made.filter((job) => job === 'too large')).toHaveLength(30 - expected)
    await database.pool.query('delete from jobs')
  }
})

it('the request of a job that ended is deleted and counts no more', async ({ database }) => {
  const { store, organizationId } = await openStore(database)
  const limits = { openMax: 10, openBytesMax: 100, onlyStored: false }
  const create = (id: string) =>
    store.create({ ...newJob(organizationId, id), request: Buffer.alloc(60) }, limits)
  await create('job_1')
  expect(await create('job_2')).toBe('too large')
  await store.cancel(organizationId, 'job_1')
  expect(await create('job_2')).toMatchObject({ id: 'job_2' })
  await store.claim(LEASES.a, 60, ROOM)
  await store.finish('job_2', LEASES.a, { state: 'completed' })
  const { rows } = await database.pool.query('select sum(octet_length(request))::int from jobs')
  expect(rows).toEqual([{ sum: 0 }])
})

it('an organization that stores nothing gets only the jobs that it needs', async ({ database }) => {
  const { store, organizationId } = await openStore(database)
  await database.pool.query('update organizations set retention_days = 0')
  for (const openMax of [10, 10_000]) {
    const optional = { openMax, openBytesMax: 0, onlyStored: true }
    expect(await store.create(newJob(organizationId, `job_${openMax}`), optional)).toBe('unstored')
    const job = await store.create(newJob(organizationId, `job_${openMax}`), {
      openMax,
      openBytesMax: 0,
      onlyStored: false,
    })
    if (typeof job === 'string') throw new Error(`the job is ${job}`)
    const dayMs = 86_400_000
    expect(job.deleteAt.getTime() - job.expiresAt.getTime()).toBe(dayMs)
  }
})
