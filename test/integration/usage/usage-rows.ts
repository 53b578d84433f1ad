import type { UsageRecord } from '#api/usage/usage-store.ts'
import { Outbox } from '#api/v1/outbox.ts'
import type { UsageRow } from '#shared/db/schema/usage.ts'
import { createLogger } from '#shared/logger.ts'

const log = createLogger({ level: 'silent' })

/** The way into a record. */
export const openWriter = (record: Pick<UsageRecord, 'add'>) =>
  new Outbox<UsageRow>({ operation: 'usage.write', add: (rows) => record.add(rows), log })

let counter = 0
/** A row of the record, with an id of its own unless it is given. */
export function rowOf(row: Partial<UsageRow>): UsageRow {
  counter += 1
  return {
    jobId: `job_${counter}`,
    organizationId: 'org-one',
    apiKeyId: 'key_1',
    userId: null,
    requestId: `req_${counter}`,
    kind: 'completion',
    modelId: 'toy',
    outcome: 'finished',
    promptTokens: 2,
    completionTokens: 3,
    cachedTokens: 1,
    createdAt: new Date('2026-03-01T12:00:00Z'),
    ...row,
  }
}
