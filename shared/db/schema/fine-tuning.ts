import { integer, jsonb, primaryKey, text, uuid } from 'drizzle-orm/pg-core'

import { moment, tableCreator, whole } from './columns.ts'
import { jobTables } from './jobs.ts'
import { organizationTables } from './organizations.ts'

/** The states of a fine-tuning job. */
export const TUNING_STATES = [
  'validating_files',
  'queued',
  'running',
  'paused',
  'succeeded',
  'failed',
  'cancelled',
] as const

/** Hyperparameters as requested; `auto` leaves the choice to the service. */
export interface RequestedHyperparameters {
  readonly nEpochs: number | 'auto'
  readonly batchSize: number | 'auto'
  readonly learningRateMultiplier: number | 'auto'
}

/** Why a fine-tuning job failed, as clients read it. */
export interface TuningError {
  readonly code: string
  readonly message: string
  readonly param: string | null
}

/** Fine-tuning jobs and their models, under the configured table prefix. */
export function tuningTables(namespace: string) {
  const table = tableCreator(namespace)
  const jobs = table('fine_tuning_jobs', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    apiKeyId: text('api_key_id'),
    userId: uuid('user_id'),
    modelIds: text('model_ids').array(),
    model: text('model').notNull(),
    trainingFile: text('training_file').notNull(),
    trainingObjectKey: text('training_object_key').notNull(),
    validationFile: text('validation_file'),
    validationObjectKey: text('validation_object_key'),
    suffix: text('suffix').notNull(),
    seed: whole('seed').notNull(),
    metadata: jsonb('metadata').$type<Readonly<Record<string, string>>>(),
    hyperparameters: jsonb('hyperparameters').$type<RequestedHyperparameters>().notNull(),
    status: text('status', { enum: TUNING_STATES }).notNull(),
    run: integer('run').notNull().default(1),
    error: jsonb('error').$type<TuningError>(),
    trainedTokens: whole('trained_tokens'),
    fineTunedModel: text('fine_tuned_model'),
    createdAt: moment('created_at').notNull().defaultNow(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
    estimatedFinishAt: moment('estimated_finish_at'),
    finishedAt: moment('finished_at'),
  })
  const events = table(
    'fine_tuning_events',
    {
      jobId: text('job_id').notNull(),
      name: text('name').notNull(),
      position: whole('position').generatedAlwaysAsIdentity(),
      id: text('id').notNull(),
      level: text('level', { enum: ['info', 'warn', 'error'] }).notNull(),
      type: text('type', { enum: ['message', 'metrics'] }).notNull(),
      message: text('message').notNull(),
      data: jsonb('data').$type<Readonly<Record<string, unknown>>>(),
      createdAt: moment('created_at').notNull().defaultNow(),
    },
    (t) => [primaryKey({ columns: [t.jobId, t.name] })],
  )
  const checkpoints = table(
    'fine_tuning_checkpoints',
    {
      jobId: text('job_id').notNull(),
      step: integer('step').notNull(),
      id: text('id').notNull(),
      metrics: jsonb('metrics').$type<Readonly<Record<string, number>>>().notNull(),
      createdAt: moment('created_at').notNull().defaultNow(),
    },
    (t) => [primaryKey({ columns: [t.jobId, t.step] })],
  )
  const models = table('tuned_models', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    jobId: text('job_id').notNull(),
    model: text('model').notNull(),
    prefix: text('prefix').notNull(),
    step: integer('step'),
    createdAt: moment('created_at').notNull().defaultNow(),
  })
  const { organizations } = organizationTables(namespace)
  return { jobs, events, checkpoints, models, organizations, runs: jobTables(namespace).jobs }
}

export type TuningTables = ReturnType<typeof tuningTables>
export type TuningJobRow = TuningTables['jobs']['$inferSelect']
export type TuningEventRow = TuningTables['events']['$inferSelect']
export type CheckpointRow = TuningTables['checkpoints']['$inferSelect']
export type TunedModelRow = TuningTables['models']['$inferSelect']
