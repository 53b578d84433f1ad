import { integer, jsonb, primaryKey, smallint, text, uuid } from 'drizzle-orm/pg-core'

import { bytea, moment, tableCreator, whole } from './columns.ts'
import { organizationTables } from './organizations.ts'

type Metadata = Readonly<Record<string, string>>

/** The states of a background job, in the order in which they occur. */
export const JOB_STATES = [
  'queued',
  'in_progress',
  'completed',
  'incomplete',
  'failed',
  'cancelled',
  'expired',
] as const

/** Priorities among the jobs of an organization, lowest first. The database stores the index. */
export const JOB_PRIORITIES = ['flex', 'default', 'priority'] as const
export type JobPriority = (typeof JOB_PRIORITIES)[number]

/** Why a job failed, as clients read it. */
export interface JobError {
  readonly code: string
  readonly message: string
}

/** Background jobs, stored answers and conversations, under the configured table prefix. */
export function jobTables(namespace: string) {
  const table = tableCreator(namespace)
  const jobs = table('jobs', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    apiKeyId: text('api_key_id'),
    userId: uuid('user_id'),
    modelIds: text('model_ids').array(),
    endpoint: text('endpoint').notNull(),
    contentType: text('content_type').notNull(),
    request: bytea('request').notNull(),
    model: text('model'),
    responseId: text('response_id'),
    metadata: jsonb('metadata').$type<Metadata>(),
    priority: smallint('priority').notNull(),
    state: text('state', { enum: JOB_STATES }).notNull(),
    attempts: integer('attempts').notNull().default(0),
    error: jsonb('error').$type<JobError>(),
    resultStatus: integer('result_status'),
    resultHeaders: jsonb('result_headers').$type<Metadata>(),
    result: bytea('result'),
    createdAt: moment('created_at').notNull(),
    notBefore: moment('not_before').notNull(),
    expiresAt: moment('expires_at').notNull(),
    startedAt: moment('started_at'),
    endedAt: moment('ended_at'),
    cancelledAt: moment('cancelled_at'),
    deleteAt: moment('delete_at').notNull(),
    leaseId: uuid('lease_id'),
    leaseUntil: moment('lease_until'),
  })
  const answers = table('stored_answers', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    userId: uuid('user_id'),
    object: text('object', { enum: ['response', 'chat.completion'] }).notNull(),
    model: text('model').notNull(),
    previousId: text('previous_id'),
    conversationId: text('conversation_id'),
    jobId: text('job_id'),
    metadata: jsonb('metadata').$type<Metadata>(),
    content: bytea('content').notNull(),
    createdAt: moment('created_at').notNull(),
    deleteAt: moment('delete_at').notNull(),
  })
  const conversations = table('conversations', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    userId: uuid('user_id'),
    metadata: jsonb('metadata').$type<Metadata>(),
    createdAt: moment('created_at').notNull(),
    deleteAt: moment('delete_at').notNull(),
  })
  const items = table(
    'conversation_items',
    {
      id: text('id').notNull(),
      conversationId: text('conversation_id').notNull(),
      position: whole('position').generatedAlwaysAsIdentity(),
      content: bytea('content').notNull(),
      createdAt: moment('created_at').notNull(),
    },
    (t) => [primaryKey({ columns: [t.conversationId, t.id] })],
  )
  const { organizations, users, storedBytes } = organizationTables(namespace)
  return { jobs, answers, conversations, items, organizations, users, storedBytes }
}

export type JobTables = ReturnType<typeof jobTables>
export type JobRow = JobTables['jobs']['$inferSelect']
export type AnswerRow = JobTables['answers']['$inferSelect']
