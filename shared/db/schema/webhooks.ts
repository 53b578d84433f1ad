import { integer, jsonb, primaryKey, smallint, text } from 'drizzle-orm/pg-core'

import { bytea, moment, tableCreator, whole } from './columns.ts'
import { organizationTables } from './organizations.ts'

/** The states of a delivery. */
export const DELIVERY_STATES = ['pending', 'delivered', 'failed'] as const

/** Webhook endpoints, events and deliveries, under the configured table prefix. */
export function webhookTables(namespace: string) {
  const table = tableCreator(namespace)
  const endpoints = table('webhook_endpoints', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    url: text('url').notNull(),
    description: text('description'),
    events: text('events').array(),
    secrets: bytea('secrets').notNull(),
    createdAt: moment('created_at').notNull().defaultNow(),
    disabledAt: moment('disabled_at'),
    disabledReason: text('disabled_reason'),
    failingSince: moment('failing_since'),
  })
  const events = table('webhook_events', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    type: text('type').notNull(),
    data: jsonb('data').$type<Readonly<Record<string, unknown>>>().notNull(),
    createdAt: moment('created_at').notNull().defaultNow(),
    /** The bytes that the event and its deliveries count towards the organization's limit. */
    bytes: integer('bytes').notNull(),
  })
  const deliveries = table('webhook_deliveries', {
    id: text('id').primaryKey(),
    endpointId: text('endpoint_id').notNull(),
    eventId: text('event_id').notNull(),
    state: text('state', { enum: DELIVERY_STATES }).notNull().default('pending'),
    attempts: integer('attempts').notNull().default(0),
    nextAttemptAt: moment('next_attempt_at').notNull().defaultNow(),
    lastStatus: integer('last_status'),
    lastError: text('last_error'),
    createdAt: moment('created_at').notNull().defaultNow(),
    deliveredAt: moment('delivered_at'),
  })
  /** Bytes of an organization's events, counted by triggers and spread over several rows. */
  const webhookBytes = table(
    'webhook_bytes',
    {
      organizationId: text('organization_id').notNull(),
      part: smallint('part').notNull(),
      bytes: whole('bytes').notNull(),
    },
    (t) => [primaryKey({ columns: [t.organizationId, t.part] })],
  )
  const { organizations } = organizationTables(namespace)
  return { endpoints, events, deliveries, webhookBytes, organizations }
}

export type WebhookTables = ReturnType<typeof webhookTables>
export type EndpointRow = WebhookTables['endpoints']['$inferSelect']
export type EventRow = WebhookTables['events']['$inferSelect']
export type DeliveryRow = WebhookTables['deliveries']['$inferSelect']
