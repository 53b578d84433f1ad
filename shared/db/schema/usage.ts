import { bigint, pgTableCreator, text, timestamp, uuid } from 'drizzle-orm/pg-core'

import { tablePrefixOf } from '../migrate.ts'

const count = (name: string) => bigint(name, { mode: 'number' }).notNull()

/** The usage of each job, under the configured table prefix. */
export function usageTables(namespace: string) {
  const prefix = tablePrefixOf(namespace)
  const usage = pgTableCreator((name) => `${prefix}${name}`)('usage', {
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
    createdAt: timestamp('created_at', { withTimezone: true, mode: 'date' }).notNull(),
  })
  return { usage }
}

export type UsageTables = ReturnType<typeof usageTables>
export type UsageRow = UsageTables['usage']['$inferSelect']
