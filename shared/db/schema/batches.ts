import { integer, jsonb, primaryKey, text, uuid } from 'drizzle-orm/pg-core'

import { moment, tableCreator, whole } from './columns.ts'
import { organizationTables } from './organizations.ts'

const counter = (name: string) => integer(name).notNull().default(0)
const sum = (name: string) => whole(name).notNull().default(0)

/** The states of a batch. */
const BATCH_STATES = [
  'validating',
  'failed',
  'in_progress',
  'finalizing',
  'completed',
  'expired',
  'cancelling',
  'cancelled',
] as const

/** One fault of an input file. */
export interface InputFault {
  readonly code: string
  readonly message: string
  readonly param: string | null
  readonly line: number | null
}

/** Batches and their lines, under the configured table prefix. */
export function batchTables(namespace: string) {
  const table = tableCreator(namespace)
  const batches = table('batches', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    modelIds: text('model_ids').array(),
    apiKeyId: text('api_key_id'),
    userId: uuid('user_id'),
    endpoint: text('endpoint').notNull(),
    inputFileId: text('input_file_id').notNull(),
    inputObjectKey: text('input_object_key').notNull(),
    completionWindow: text('completion_window').notNull(),
    metadata: jsonb('metadata').$type<Readonly<Record<string, string>>>(),
    /** How long the files of the batch are kept; null for ever. */
    outputRetentionSeconds: integer('output_retention_seconds'),
    status: text('status', { enum: BATCH_STATES }).notNull().default('validating'),
    errors: jsonb('errors').$type<readonly InputFault[]>(),
    outputFileId: text('output_file_id'),
    errorFileId: text('error_file_id'),
    total: counter('total'),
    completed: counter('completed'),
    failed: counter('failed'),
    /** The model that answered first. */
    modelId: text('model_id'),
    promptTokens: sum('prompt_tokens'),
    completionTokens: sum('completion_tokens'),
    cachedTokens: sum('cached_tokens'),
    reasoningTokens: sum('reasoning_tokens'),
    createdAt: moment('created_at').notNull().defaultNow(),
    expiresAt: moment('expires_at').notNull(),
    inProgressAt: moment('in_progress_at'),
    finalizingAt: moment('finalizing_at'),
    completedAt: moment('completed_at'),
    failedAt: moment('failed_at'),
    expiredAt: moment('expired_at'),
    cancellingAt: moment('cancelling_at'),
    cancelledAt: moment('cancelled_at'),
    leaseId: uuid('lease_id'),
    leaseUntil: moment('lease_until'),
    servedAt: moment('served_at'),
  })
  const lines = table(
    'batch_lines',
    {
      batchId: text('batch_id').notNull(),
      line: integer('line').notNull(),
      customId: text('custom_id').notNull(),
      body: text('body').notNull(),
      state: text('state', { enum: ['waiting', 'running', 'done'] })
        .notNull()
        .default('waiting'),
      attempts: counter('attempts'),
      retryAt: moment('retry_at').notNull().defaultNow(),
      leaseId: uuid('lease_id'),
      leaseUntil: moment('lease_until'),
      requestId: text('request_id'),
      statusCode: integer('status_code'),
      answer: text('answer'),
    },
    (t) => [primaryKey({ columns: [t.batchId, t.line] })],
  )
  const { organizations, users, storedBytes } = organizationTables(namespace)
  return { batches, lines, organizations, users, storedBytes }
}

export type BatchTables = ReturnType<typeof batchTables>
export type BatchRow = BatchTables['batches']['$inferSelect']
export type BatchLineRow = BatchTables['lines']['$inferSelect']
