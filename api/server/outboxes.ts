import type { Redis } from 'ioredis'

import type { Activities, OwnActivity } from '#api/activities/activity-store.ts'
import { decodeActivity, encodeActivity, jobActivities } from '#api/activities/own-activity.ts'
import type { UsageRecord } from '#api/usage/usage-store.ts'
import { Outbox, openJournal } from '#api/v1/outbox.ts'
import type { UsageRow } from '#shared/db/schema/usage.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'

/** Rows that are written to the database after the answer. */
export interface Outboxes {
  /** Usage rows and the activities of ended jobs. */
  readonly usageWriter: Outbox<UsageRow>
  /** All other activities of the platform. */
  readonly activityWriter: Outbox<OwnActivity>
}

/** Opens the outboxes of one API process. */
export function openOutboxes(services: {
  readonly usage: Pick<UsageRecord, 'add'>
  readonly activities: Pick<Activities, 'recordOwn'>
  readonly redis: Redis
  readonly prefix: string
  readonly log: Logger
  readonly cipher?: ContentCipher | undefined
}): Outboxes {
  const { usage, activities, redis, prefix, log, cipher } = services
  return {
    usageWriter: new Outbox<UsageRow>({
      operation: 'usage.write',
      log,
      async add(rows) {
        await usage.add(rows)
        await activities.recordOwn(jobActivities(rows))
      },
      journal: {
        store: openJournal(redis, `${prefix}:usage:pending`, cipher),
        idOf: ({ jobId }) => jobId,
        encode: JSON.stringify,
        decode(text) {
          const row = JSON.parse(text)
          return { ...row, createdAt: new Date(row.createdAt) }
        },
      },
    }),
    activityWriter: new Outbox<OwnActivity>({
      operation: 'activity.write',
      log,
      add: (rows) => activities.recordOwn(rows),
      journal: {
        store: openJournal(redis, `${prefix}:activities:pending`, cipher),
        idOf: ({ id }) => id,
        encode: encodeActivity,
        decode: decodeActivity,
      },
    }),
  }
}
