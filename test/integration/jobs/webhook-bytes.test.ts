import { randomUUID } from 'node:crypto'

import { expect } from 'vitest'

import type { EventType } from '#api/webhooks/event-types.ts'
import { WebhookStore } from '#api/webhooks/webhook-store.ts'
import type { Database } from '#shared/db/client.ts'
import type { EndpointRow } from '#shared/db/schema/webhooks.ts'
import { webhookTables } from '#shared/db/schema/webhooks.ts'
import { it } from '#test/support/services.ts'

const BYTES_MAX = 64 * 1024

async function openStore({ db, pool }: Database) {
  const store = new WebhookStore(db, webhookTables(''), { bytesMax: BYTES_MAX })
  const newEndpoint = async (organizationId: string) => {
    const of = { organizationId, url: 'https://example.test/', description: null, events: null }
    const made = await store.createEndpoint({
      ...of,
      id: `whe_${randomUUID()}`,
      secrets: Buffer.from('x'),
    })
    return made as EndpointRow
  }
  const eventOf = (organizationId: string, type: EventType = 'webhook.test') => {
    return { id: `evt_${randomUUID()}`, organizationId, type, data: { text: 'é'.repeat(100) } }
  }
  const test = (endpoint: EndpointRow) =>
    store.sendTo(endpoint, eventOf(endpoint.organizationId), `whd_${randomUUID()}`)
  /** Sends test events until no more are stored; returns their number. */
  const fill = async (endpoint: EndpointRow): Promise<number> => {
    for (let sent = 0; ; sent += 1) {
      const refused = await test(endpoint).then(
        () => undefined,
        (error: { readonly code: string }) => error.code,
      )
      if (refused === undefined) continue
      expect(refused).toBe('storage_limit_exceeded')
      return sent
    }
  }
  const bytesOf = async (organizationId: string): Promise<number> => {
    const { rows } = await pool.query(
      `select coalesce(sum(bytes), 0)::int as counted, (
         select coalesce(sum(512 + octet_length($2::text) + 1024 * (
           select count(*) from webhook_deliveries where event_id = e.id)), 0)::int
         from webhook_events e where organization_id = $1) as actual
       from webhook_bytes where organization_id = $1`,
      [organizationId, JSON.stringify(eventOf('').data)],
    )
    expect(rows[0].counted).toBe(rows[0].actual)
    return rows[0].counted
  }
  const countEvents = async (organizationId: string): Promise<number> => {
    const query = 'select count(*)::int from webhook_events where organization_id = $1'
    return (await pool.query(query, [organizationId])).rows[0].count
  }
  return { store, newEndpoint, eventOf, fill, bytesOf, countEvents }
}

it('stores no more events of an organization whose events have their bytes', async ({
  database,
}) => {
  const { store, newEndpoint, eventOf, fill, bytesOf, countEvents } = await openStore(database)
  const endpoint = await newEndpoint('org-full')
  const stored = await fill(endpoint)
  expect(stored).toBeGreaterThan(20)
  expect(stored).toBeLessThan(60)
  const bytes = await bytesOf('org-full')
  await store.announce(database.db, [eventOf('org-full', 'file.stored')])
  expect(await bytesOf('org-full')).toBe(bytes)
  // Others have room of their own, and each endpoint counts.
  const others = await Promise.all([1, 2, 3].map(() => newEndpoint('org-other')))
  const event = eventOf('org-other', 'file.stored')
  await store.announce(database.db, [event, event])
  expect(await countEvents('org-other')).toBe(1)
  const { rows } = await store.listDeliveries(others[0]?.id ?? '', { limit: 10 })
  expect(rows).toHaveLength(1)
  expect(await bytesOf('org-other')).toBeGreaterThan(3 * 1024)
})

it('deletes the oldest ended events beyond half of the bytes, but never undelivered ones', async ({
  database,
}) => {
  const { store, newEndpoint, fill, bytesOf, countEvents } = await openStore(database)
  const endpoint = await newEndpoint('org-busy')
  const stored = await fill(endpoint)
  await store.sweep()
  expect(await countEvents('org-busy')).toBe(stored)
  const { rows: newest } = await store.listDeliveries(endpoint.id, { limit: 1 })
  await database.pool.query("update webhook_deliveries set state = 'delivered'")
  await store.sweep()
  expect(await bytesOf('org-busy')).toBeLessThanOrEqual(BYTES_MAX / 2)
  expect(await countEvents('org-busy')).toBeGreaterThan(stored / 3)
  const left = await store.listDeliveries(endpoint.id, { limit: 1 })
  expect(left.rows[0]?.id).toBe(newest[0]?.id)
  // An endpoint that is disabled must not keep the events of others out.
  await fill(endpoint)
  await store.updateEndpoint('org-busy', endpoint.id, { disabledAt: new Date() })
  await store.sweep()
  expect(await bytesOf('org-busy')).toBeLessThanOrEqual(BYTES_MAX / 2)
  await store.removeEndpoint('org-busy', endpoint.id)
  await database.pool.query("delete from webhook_events where organization_id = 'org-busy'")
  expect(await bytesOf('org-busy')).toBe(0)
})
