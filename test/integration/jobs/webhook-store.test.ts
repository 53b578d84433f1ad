import { randomUUID } from 'node:crypto'

import { expect } from 'vitest'

import { WebhookStore } from '#api/webhooks/webhook-store.ts'
import type { Database } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { webhookTables } from '#shared/db/schema/webhooks.ts'
import { it } from '#test/support/services.ts'

async function openStore(
  { db }: Database,
  organizations: readonly string[],
  options: { readonly bytesMax?: number } = {},
) {
  const tables = webhookTables('')
  const store = new WebhookStore(db, tables, options)
  const rows = organizations.map((id) => ({ id, name: id }))
  await db.insert(organizationTables('').organizations).values(rows)
  const endpointOf = (organizationId: string) =>
    store.createEndpoint({
      id: `whe_${randomUUID()}`,
      organizationId,
      url: 'https://example.test/',
      description: null,
      secrets: Buffer.from('x'),
      events: null,
    })
  return { store, endpointOf }
}

it('an organization has 50 webhook endpoints at most, however many it creates at once', async ({
  database,
}) => {
  const { endpointOf } = await openStore(database, ['org-eager'])
  const made = await Promise.all(Array.from({ length: 60 }, () => endpointOf('org-eager')))
  expect(made.filter((endpoint) => endpoint !== undefined)).toHaveLength(50)
})

it('deliveries of one organization leave room for those of others, and failing ones for successful ones', async ({
  database,
}) => {
  const { store, endpointOf } = await openStore(database, ['org-busy', 'org-failing', 'org-live'])
  const send = async (organizationId: string) => {
    const endpoint = await endpointOf(organizationId)
    if (endpoint === undefined) throw new Error('the organization has too many endpoints')
    const event = { id: `evt_${randomUUID()}`, organizationId, data: {} }
    await store.sendTo(endpoint, { ...event, type: 'webhook.test' }, `whd_${randomUUID()}`)
  }
  const claim = async (options: Partial<Parameters<WebhookStore['claim']>[0]> = {}) => {
    const due = await store.claim({
      limit: 10,
      leaseSeconds: 0,
      perEndpointMax: 8,
      busy: [],
      perOrganizationMax: 4,
      busyOrganizations: [],
      triesFailing: true,
      ...options,
    })
    return due.map(({ endpoint }) => endpoint.organizationId).toSorted()
  }
  for (let n = 0; n < 12; n += 1) await send('org-busy')
  for (const name of ['org-failing', 'org-live']) await send(name)
  for (const delivery of await store.claim({
    limit: 20,
    leaseSeconds: 0,
    perEndpointMax: 8,
    busy: [],
    triesFailing: true,
    perOrganizationMax: 20,
    busyOrganizations: ['org-busy', 'org-live'],
  })) {
    await store.settle([{ delivery, isDelivered: false, status: 500, retryAfterMs: 0 }])
  }
  const busy = Array(4).fill('org-busy')
  expect(await claim()).toEqual([...busy, 'org-failing', 'org-live'])
  expect(await claim({ busyOrganizations: ['org-busy'] })).toEqual(['org-failing', 'org-live'])
  expect(await claim({ triesFailing: false })).toEqual([...busy, 'org-live'])
  // Endpoints that answer come first.
  expect(await claim({ limit: 5 })).toEqual([...busy, 'org-live'])
})

it('an endpoint fails since the first failure after its last success', async ({ database }) => {
  const { store, endpointOf } = await openStore(database, ['org-recorded'])
  const endpoint = await endpointOf('org-recorded')
  if (endpoint === undefined) throw new Error('the organization has too many endpoints')
  for (const n of [1, 2, 3]) {
    const event = { id: `evt_${randomUUID()}`, organizationId: 'org-recorded', data: {} }
    await store.sendTo(endpoint, { ...event, type: 'webhook.test' }, `whd_${n}_${randomUUID()}`)
  }
  const due = await store.claim({
    limit: 10,
    leaseSeconds: 60,
    perEndpointMax: 8,
    busy: [],
    triesFailing: true,
    perOrganizationMax: 8,
    busyOrganizations: [],
  })
  const [one, two, three] = due.toSorted((a, b) => (a.id < b.id ? -1 : 1))
  if (one === undefined || two === undefined || three === undefined) throw new Error('not claimed')
  const failingSince = async () =>
    (await store.findEndpoint('org-recorded', endpoint.id))?.failingSince?.getTime()
  const success = { isDelivered: true, status: 204 }
  const failed = { isDelivered: false, error: 'answered 500', status: 500, retryAfterMs: 1000 }

  await store.settle([{ delivery: one, ...failed }])
  const first = await failingSince()
  expect(first).toBeTypeOf('number')
  await store.settle([{ delivery: two, ...failed }])
  expect(await failingSince()).toBe(first)
  await store.settle([
    { delivery: two, ...success },
    { delivery: three, isDelivered: false, error: 'cannot be reached' },
  ])
  expect(await failingSince()).toBeGreaterThan(first ?? 0)
  await store.settle([
    { delivery: one, ...failed },
    { delivery: two, ...success },
  ])
  expect(await failingSince()).toBeUndefined()
  const { rows } = await store.listDeliveries(endpoint.id, { limit: 10 })
  const shown = rows.toSorted((a, b) => (a.id < b.id ? -1 : 1))
  expect(shown.map(({ state, lastStatus, lastError }) => [state, lastStatus, lastError])).toEqual([
    ['pending', 500, 'answered 500'],
    ['delivered', 204, null],
    ['failed', null, 'cannot be reached'],
  ])
})
