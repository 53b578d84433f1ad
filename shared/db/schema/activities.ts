import { json, primaryKey, smallint, text } from 'drizzle-orm/pg-core'

import { tablePrefixOf } from '#shared/db/migrate.ts'

import { bytea, moment, tableCreator, whole } from './columns.ts'

/** The activity journal, under the configured table prefix. */
export function activityTables(namespace: string) {
  const prefix = tablePrefixOf(namespace)
  const table = tableCreator(namespace)
  const activities = table(
    'activities',
    {
      organizationId: text('organization_id').notNull(),
      id: text('id').notNull(),
      type: text('type').notNull(),
      actorId: text('actor_id'),
      objectId: text('object_id'),
      published: moment('published').notNull(),
      createdAt: moment('created_at').notNull(),
      activity: json('activity').$type<Record<string, unknown>>().notNull(),
    },
    (t) => [primaryKey({ columns: [t.organizationId, t.createdAt, t.id] })],
  )
  const activityIds = table(
    'activity_ids',
    {
      organizationId: text('organization_id').notNull(),
      id: text('id').notNull(),
      createdAt: moment('created_at').notNull(),
      digest: bytea('digest').notNull(),
    },
    (t) => [primaryKey({ columns: [t.organizationId, t.id] })],
  )
  /**
   * Bytes of the activities that clients record, counted by triggers and spread over several rows.
   */
  const activityBytes = table(
    'activity_bytes',
    {
      organizationId: text('organization_id').notNull(),
      part: smallint('part').notNull(),
      bytes: whole('bytes').notNull(),
    },
    (t) => [primaryKey({ columns: [t.organizationId, t.part] })],
  )
  const makePartitions = `${prefix}make_activity_partitions`
  return { activities, activityIds, activityBytes, makePartitions, prefix }
}

export type ActivityTables = ReturnType<typeof activityTables>
export type ActivityRow = ActivityTables['activities']['$inferSelect']
