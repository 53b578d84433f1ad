import { text, uuid } from 'drizzle-orm/pg-core'

import { moment, tableCreator, whole } from './columns.ts'

const count = (name: string) => whole(name).notNull()

/** The usage of each job, under the configured table prefix. */
export function usageTables(namespace: string) {
  const usage = tableCreator(namespace)('usage', {
    jobId: text('job_id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    apiKeyId: text('api_key_id'),
    userId: uuid('user_id'),
    requestId: text('request_id'),
    kind: text('kind').notNull(),
    modelId: text('model_id').notNull(),
    outcome: text('outcome', { enum: ['finished', 'abandoned', 'failed'] }).notNull(),
    promptTokens: count('prompt_tokens'),
    completionTokens: count('completion_tokens'),
    cachedTokens: count('cached_tokens'),
    createdAt: moment('created_at').notNull(),
  })
  return { usage }
}

export type UsageTables = ReturnType<typeof usageTables>
export type UsageRow = UsageTables['usage']['$inferSelect']
