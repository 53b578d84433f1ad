import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'

import type { BackgroundJobs, JobOwner } from '#api/jobs/background-jobs.ts'
import { requireUncountedCaller } from '#api/limits/own-limits.ts'
import { checkMetadata } from '#api/v1/metadata-field.ts'
import {
  answerHeadOf,
  type Caller,
  callerOf,
  mayUseModel,
  noSuchModel,
} from '#api/v1/request-context.ts'
import type { Catalogue, CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { TuningConfig } from '#shared/config/limits.ts'
import type { RequestedHyperparameters, TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import type { CREATE_BODY, FINE_TUNE_BODY } from './schemas.ts'
import { JOBS_KEPT_MAX } from './tuning-limits.ts'
import type { TuningStore } from './tuning-store.ts'

const FILE_BYTES_MAX = 1024 ** 3
const SEED_MAX = 2 ** 31 - 1
const HOUR_MS = 3_600_000

/** The collaborators of creating a job. */
export interface CreateServices {
  readonly catalogue: Catalogue
  readonly tuning: TuningStore
  readonly background: BackgroundJobs
  readonly clock: Clock
  readonly limits: TuningConfig
  readonly files: {
    find(
      organizationId: string,
      id: string,
    ): Promise<
      | {
          readonly objectKey: string
          readonly purpose: string
          readonly bytes: number
          readonly filename: string
          readonly createdAt: Date
        }
      | undefined
    >
  }
}

/** A request of either generation of the API. */
interface TuningRequest {
  readonly model: string
  readonly trainingFile: string
  readonly validationFile: string | null
  readonly suffix: string
  readonly seed: number
  readonly metadata: Readonly<Record<string, string>> | null
  readonly hyperparameters: RequestedHyperparameters
}

/** Reads the body of `POST /fine_tuning/jobs`; refuses valid fields that are not supported. */
export function requestedByJob(body: Static<typeof CREATE_BODY>): TuningRequest {
  const { method, metadata = null } = body
  checkMetadata(metadata)
  if (method && method.type !== 'supervised') {
    throw unsupported('method.type', `the method '${method.type}' is not served, only 'supervised'`)
  }
  for (const name of ['dpo', 'reinforcement'] as const) {
    if (method?.[name])
      throw unsupported(`method.${name}`, "only the method 'supervised' is served")
  }
  if ((body.integrations ?? []).length > 0) {
    throw unsupported('integrations', 'no integration is served; use webhooks or the events')
  }
  const own = method?.supervised?.hyperparameters
  if (own && body.hyperparameters) {
    throw unsupported('hyperparameters', "give them in 'method' or here, not both")
  }
  return {
    model: body.model,
    trainingFile: body.training_file,
    validationFile: body.validation_file ?? null,
    suffix: body.suffix ?? '',
    seed: body.seed ?? Math.floor(Math.random() * SEED_MAX),
    metadata,
    hyperparameters: requestedOf(own ?? body.hyperparameters ?? {}),
  }
}

/** The model of requests of 2021 that name none. */
const OLDER_DEFAULT_MODEL = 'curie'

/** Reads the body of `POST /fine-tunes`, with the same refusals. */
export function requestedByFineTune(body: Static<typeof FINE_TUNE_BODY>): TuningRequest {
  if ((body.prompt_loss_weight ?? 0) !== 0) {
    throw unsupported('prompt_loss_weight', 'only 0 is served: prompts are not learned')
  }
  for (const name of [
    'compute_classification_metrics',
    'classification_n_classes',
    'classification_positive_class',
    'classification_betas',
  ] as const) {
    if (![undefined, null, false].includes(body[name] as null)) {
      throw unsupported(name, 'metrics of classification are not served')
    }
  }
  return {
    model: body.model ?? OLDER_DEFAULT_MODEL,
    trainingFile: body.training_file,
    validationFile: body.validation_file ?? null,
    suffix: body.suffix ?? '',
    seed: Math.floor(Math.random() * SEED_MAX),
    metadata: null,
    hyperparameters: requestedOf(body),
  }
}

function requestedOf(fields: {
  readonly n_epochs?: number | 'auto' | null
  readonly batch_size?: number | 'auto' | null
  readonly learning_rate_multiplier?: number | 'auto' | null
}): RequestedHyperparameters {
  return {
    nEpochs: fields.n_epochs ?? 'auto',
    batchSize: fields.batch_size ?? 'auto',
    learningRateMultiplier: fields.learning_rate_multiplier ?? 'auto',
  }
}

/** Stores a job and starts its first run, which checks the files. */
export async function createTuningJob(
  request: FastifyRequest,
  services: CreateServices,
  wanted: TuningRequest,
): Promise<TuningJobRow> {
  const { tuning, clock } = services
  const caller = callerOf(request)
  requireUncountedCaller(caller, 'fine-tuning jobs')
  const id = answerHeadOf(request, clock).newId('ftjob-')
  // A process that died may have created the job of this Idempotency-Key, with its run or without.
  const isRepeatable = request.context.durable !== undefined
  const earlier = isRepeatable && (await tuning.find(caller.organizationId, id))
  if (earlier && earlier.status !== 'validating_files') return earlier
  const job = earlier || (await insertJob(caller, services, { ...wanted, id }))
  try {
    await startRun(caller, services, { ...job, isRepeatable })
  } catch (error) {
    await tuning.cancel(job.id)
    throw error
  }
  return job
}

async function insertJob(
  caller: Caller,
  services: CreateServices,
  wanted: TuningRequest & Pick<TuningJobRow, 'id'>,
): Promise<TuningJobRow> {
  const { tuning, limits } = services
  const { organizationId, apiKeyId, userId, modelIds } = caller
  const base = tunableModel(caller, services.catalogue, wanted.model)
  const { nEpochs } = wanted.hyperparameters
  if (nEpochs !== 'auto' && nEpochs > limits.epochsMax) {
    throw failure.invalidRequest(
      `Invalid 'n_epochs': at most ${limits.epochsMax} epochs are allowed.`,
      { param: 'n_epochs', code: 'integer_above_max_value' },
    )
  }
  const objectKey = async (param: 'training_file' | 'validation_file', id: string) =>
    inputOf(await services.files.find(organizationId, id), param, id)
  const { trainingFile, validationFile } = wanted
  const job = await tuning.create(
    {
      id: wanted.id,
      organizationId,
      model: base.id,
      trainingFile,
      validationFile,
      apiKeyId: apiKeyId ?? null,
      userId: userId ?? null,
      modelIds: modelIds === null ? null : [...modelIds],
      trainingObjectKey: await objectKey('training_file', trainingFile),
      validationObjectKey:
        validationFile === null ? null : await objectKey('validation_file', validationFile),
      suffix: wanted.suffix,
      seed: wanted.seed,
      metadata: wanted.metadata,
      hyperparameters: wanted.hyperparameters,
    },
    { openMax: limits.jobsMax, tunedMax: limits.modelsMax },
  )
  if (job === 'openMax') throw tooManyJobs(limits.jobsMax)
  if (job === 'keptMax') throw tooManyKept()
  if (job === 'tunedMax') throw tooManyModels(limits.modelsMax)
  return job
}

/** Starts the background job that runs a job, from its beginning or its last checkpoint. */
export async function startRun(
  owner: JobOwner,
  { background, clock, limits }: Pick<CreateServices, 'background' | 'clock' | 'limits'>,
  job: TuningJobRow & { readonly isRepeatable?: boolean },
): Promise<void> {
  const createdAtMs = clock.now()
  await background.create(owner, {
    id: runIdOf(job),
    isRepeatable: job.isRepeatable ?? false,
    endpoint: runPathOf(job.id),
    createdAtMs,
    body: Buffer.from(JSON.stringify({ run: job.run })),
    contentType: 'application/json',
    model: job.model,
    metadata: job.metadata,
    expiresAtMs: createdAtMs + limits.hoursMax * HOUR_MS,
  })
}

/** The id of the background job of a job's current run. */
export function runIdOf({ id, run }: Pick<TuningJobRow, 'id' | 'run'>): string {
  return `${id}-${run}`
}

const RUN_PATH = /^\/v1\/fine_tuning\/jobs\/([^/]+)\/run$/

/** The path of the request that runs a job. */
function runPathOf(id: string): string {
  return `/v1/fine_tuning/jobs/${id}/run`
}

/** The job that a background job runs, if it runs one. */
export function tuningJobOf(endpoint: string): string | undefined {
  return RUN_PATH.exec(endpoint)?.[1]
}

function tunableModel(caller: Caller, catalogue: Catalogue, name: string): CatalogueModel {
  const model = catalogue.find(name)
  if (model === undefined || !mayUseModel(caller, model)) {
    throw noSuchModel(name, 'model')
  }
  if (model.capabilities.includes('fine-tune')) return model
  const able = catalogue.models.filter(({ capabilities }) => capabilities.includes('fine-tune'))
  const names = able.map(({ id }) => id).join(', ')
  throw failure.invalidRequest(
    `Model ${model.id} is not available for fine-tuning. Models that are: ${names === '' ? 'none' : names}.`,
    { param: 'model', code: 'model_not_available' },
  )
}

/** The object key of an uploaded file. Throws unless its purpose is `fine-tune`. */
function inputOf(
  file:
    | { readonly objectKey: string; readonly purpose: string; readonly bytes: number }
    | undefined,
  param: string,
  id: string,
): string {
  if (file === undefined) {
    throw failure.invalidRequest(`invalid ${param}: ${id.slice(0, 100)} does not exist`, {
      param,
      code: 'file_not_found',
    })
  }
  if (file.purpose !== 'fine-tune') {
    throw failure.invalidRequest(
      `Invalid '${param}': expected a file with the purpose 'fine-tune', but it was uploaded for '${file.purpose}'.`,
      { param, code: 'invalid_value' },
    )
  }
  if (file.bytes > FILE_BYTES_MAX) {
    throw failure.invalidRequest(
      `Invalid '${param}': the file has ${file.bytes} bytes, but at most ${FILE_BYTES_MAX} are allowed.`,
      { param, code: 'file_too_large' },
    )
  }
  return file.objectKey
}

function tooManyJobs(jobsMax: number): ServiceError {
  return failure.rateLimited(
    `Your organization has ${jobsMax} unfinished fine-tuning jobs, the most that are allowed. Wait for one to end, or cancel one.`,
    { code: 'fine_tuning_job_limit_exceeded', retryAfterSeconds: 60, shouldRetry: false },
  )
}

function tooManyKept(): ServiceError {
  return failure.rateLimited(
    `Your organization has reached the limit of ${JOBS_KEPT_MAX} fine-tuning jobs. Ended jobs without a model are deleted after 30 days.`,
    { code: 'fine_tuning_job_limit_exceeded', retryAfterSeconds: 3600, shouldRetry: false },
  )
}

function tooManyModels(modelsMax: number): ServiceError {
  return failure.invalidRequest(
    `Your organization has tuned models of ${modelsMax} fine-tuning jobs, or will have with those that are unfinished, the most that are allowed. Delete a model.`,
    { code: 'fine_tuned_model_limit_exceeded', shouldRetry: false },
  )
}

function unsupported(param: string, reason: string): ServiceError {
  return failure.invalidRequest(`Unsupported value: '${param}': ${reason}.`, {
    param,
    code: 'unsupported_value',
  })
}
