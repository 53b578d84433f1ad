import type { JobEvent, Submitter } from '#api/jobs/observers.ts'
import { clientSignal, type Http } from '#api/jobs/run-inference.ts'
import { accountOf } from '#api/v1/request-context.ts'
import type { Catalogue, CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { TuningConfig } from '#shared/config/limits.ts'
import type { TrainingInput, TrainingProgress, TrainingResult } from '#shared/contracts/training.ts'
import type { TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import { CancelledError, failure, ServiceError } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { runIdOf } from './create-job.ts'
import { FaultyExamplesError, prepareExamples, type ReadExample } from './example-lines.ts'
import { checkpointName, tunedModelName } from './tuned-models.ts'
import type { NewTuningEvent } from './tuning-states.ts'
import type { TuningStore } from './tuning-store.ts'

const HOUR_MS = 3_600_000
/** Recorded steps of one job, besides those with a checkpoint or a validation loss. */
const STEPS_RECORDED_MAX = 1000

const RUNNABLE: readonly TuningJobRow['status'][] = ['validating_files', 'queued', 'running']

/** The collaborators of running a job. */
export interface RunServices {
  readonly catalogue: Catalogue
  readonly tuning: TuningStore
  readonly submitter: Submitter
  readonly store: ObjectStore
  readonly clock: Clock
  readonly limits: TuningConfig
  readonly readExample: ReadExample
}

/** The keys of a job's objects in object storage. */
export function objectsOf(jobId: string) {
  const prefix = `fine-tuning/${jobId}`
  return {
    prefix: `${prefix}/`,
    outputPrefix: prefix,
    examplesKey: `${prefix}/examples.jsonl`,
    validationKey: `${prefix}/validation.jsonl`,
  }
}

/**
 * Runs a job as the stored request of its background job: checks the files, submits the training
 * and records the worker's replies. A process that adopts the job of a dead one also adopts the
 * training and records each event once, because events have unique names.
 */
export async function runTuningJob(
  http: Http,
  services: RunServices,
  job: TuningJobRow,
): Promise<object> {
  const { tuning } = services
  // A run that is repeated after an error may find its job ended.
  if (!RUNNABLE.includes(job.status)) {
    throw failure.conflict(`The job is ${job.status}.`, { code: 'invalid_status' })
  }
  const signal = clientSignal(http)
  try {
    const ready = job.status === 'validating_files' ? await prepare(services, job, signal) : job
    // A training waits for its worker and takes hours, so other jobs run in the slot.
    http.request.context.stored?.leaveSlot()
    await train(http, services, { job: ready, signal })
  } catch (error) {
    if (signal.aborted || error instanceof CancelledError) throw error
    if (error instanceof FaultyExamplesError) throw await refuseFile(tuning, job, error)
    // A full queue or an unreachable service is retried later.
    if (error instanceof ServiceError && error.kind === 'overloaded') throw error
    const reason = reasonOf(error)
    await tuning.fail(job.id, reason)
    throw error instanceof ServiceError
      ? failure.unprocessable(reason.message, { code: reason.code, cause: error })
      : error
  }
  return { id: runIdOf(job), object: 'fine_tuning.job.run' }
}

function reasonOf(error: unknown) {
  if (!(error instanceof ServiceError)) {
    const message = 'The training could not be completed because of an internal error.'
    return { code: 'server_error', message, param: null }
  }
  return { code: error.code ?? 'training_failed', message: error.message, param: null }
}

/** Checks the files and stores the examples in the trainer's format. */
async function prepare(
  { tuning, store, limits, readExample }: RunServices,
  job: TuningJobRow,
  signal: AbortSignal,
): Promise<TuningJobRow> {
  const { examplesKey, validationKey } = objectsOf(job.id)
  const { examplesMax } = limits
  const write = (param: 'training_file' | 'validation_file', objectKey: string, key: string) =>
    prepareExamples({ store, readExample, examplesMax, signal, objectKey, preparedKey: key, param })
  const training = await write('training_file', job.trainingObjectKey, examplesKey)
  const validation =
    job.validationObjectKey === null
      ? { examples: 0 }
      : await write('validation_file', job.validationObjectKey, validationKey)
  const counts = { examples: training.examples, validation_examples: validation.examples }
  const event: NewTuningEvent = {
    name: 'validated',
    message: `Files validated: ${training.examples} training and ${validation.examples} validation examples; moving job to queued state`,
    data: counts,
  }
  const ready = await tuning.move(job.id, { from: ['validating_files'], to: 'queued', event })
  if (ready === undefined) throw new CancelledError()
  return ready
}

/** Ends a job whose file is faulty, with an event for each fault. */
async function refuseFile(
  tuning: TuningStore,
  job: TuningJobRow,
  { faults, param }: FaultyExamplesError,
): Promise<ServiceError> {
  await tuning.record(
    job.id,
    faults.map((fault, index) => ({
      name: `fault:${index}`,
      level: 'error' as const,
      message: fault.message,
      data: { file: param, line: fault.line, param: fault.param, code: fault.code },
    })),
  )
  const shown = faults.slice(0, FAULTS_IN_MESSAGE).map(({ message }) => message)
  const rest = faults.length > shown.length ? ` (${faults.length} faults; see the events)` : ''
  const message = `The file has faults. ${shown.join(' ')}${rest}`
  const code = `invalid_${param}`
  await tuning.fail(job.id, { code, message, param })
  return failure.unprocessable(message, { param, code })
}

const FAULTS_IN_MESSAGE = 3

/** Submits the training, or adopts it, and records its progress. */
async function train(
  http: Http,
  services: RunServices,
  { job, signal }: { readonly job: TuningJobRow; readonly signal: AbortSignal },
): Promise<void> {
  const { submitter, clock, limits, tuning } = services
  const { request } = http
  const startedAtMs = request.context.stored?.createdAtMs ?? clock.now()
  const durable = request.context.durable?.nextJob()
  const events = submitter.submit<'training'>({
    kind: 'training',
    model: trainingModel(services.catalogue, job),
    input: trainingInput(job, limits),
    organizationId: job.organizationId,
    jobId: runIdOf(job),
    account: accountOf(request),
    deadlineAtMs: startedAtMs + limits.hoursMax * HOUR_MS,
    signal,
    ...(durable !== undefined && { durable }),
  })
  const record = new Recorder(tuning, job, clock)
  for await (const event of events) await record.take(event)
}

function trainingModel(catalogue: Catalogue, job: TuningJobRow): CatalogueModel {
  const model = catalogue.find(job.model)
  if (model === undefined) {
    throw failure.notFound(`The model \`${job.model}\` is not offered any more.`, {
      code: 'model_not_found',
    })
  }
  return { ...model, kind: 'training' }
}

function trainingInput(job: TuningJobRow, { epochsMax }: TuningConfig): TrainingInput {
  const { nEpochs, batchSize, learningRateMultiplier } = job.hyperparameters
  const stated = (value: number | 'auto'): number | null => (value === 'auto' ? null : value)
  const { examplesKey, validationKey, outputPrefix } = objectsOf(job.id)
  return {
    task: 'train',
    examplesKey,
    validationKey: job.validationObjectKey === null ? null : validationKey,
    hyperparameters: {
      epochs: stated(nEpochs),
      batchSize: stated(batchSize),
      rank: null,
      alpha: null,
      learningRateMultiplier: stated(learningRateMultiplier),
    },
    epochsMax,
    seed: job.seed,
    outputPrefix,
  }
}

/** Records the worker's replies of one training. */
class Recorder {
  readonly #tuning: TuningStore
  readonly #job: TuningJobRow
  readonly #clock: Clock
  readonly #model: string
  #first: { readonly step: number; readonly atMs: number } | undefined

  constructor(tuning: TuningStore, job: TuningJobRow, clock: Clock) {
    this.#tuning = tuning
    this.#job = job
    this.#clock = clock
    this.#model = tunedModelName(job)
  }

  async take(event: JobEvent<'training'>): Promise<void> {
    if (event.type === 'started') await this.#start()
    else if (event.type === 'progress' && event.training) await this.#step(event.training)
    else if (event.type === 'result') await this.#succeed(event.result)
  }

  async #start(): Promise<void> {
    const event = { name: `started:${this.#job.run}`, message: 'Fine-tuning job started' }
    await this.#tuning.move(this.#job.id, { from: ['queued'], to: 'running', event })
  }

  async #step(training: TrainingProgress): Promise<void> {
    const { step, steps, statistics, settled, checkpoint, trainedTokens } = training
    const events: NewTuningEvent[] = []
    if (statistics !== undefined) {
      const { examples, tokens, truncatedExamples } = statistics
      events.push({
        name: 'statistics',
        message: `Training on ${examples} examples with ${tokens} tokens; ${truncatedExamples} are truncated`,
        data: { examples, tokens, truncated_examples: truncatedExamples, total_steps: steps },
      })
    }
    if (isRecorded(training)) events.push(stepEvent(training))
    if (events.length > 0 || step === steps) {
      const estimatedFinishAt = this.#estimate(step, steps)
      const hyperparameters = settled && this.#settle(settled)
      const recorded = { events, trainedTokens, estimatedFinishAt, hyperparameters }
      if (!(await this.#tuning.progress(this.#job.id, recorded))) return
    }
    if (checkpoint === undefined) return
    await this.#tuning.addCheckpoint(this.#job, {
      step: checkpoint.step,
      prefix: checkpoint.prefix,
      model: checkpointName(this.#model, checkpoint.step),
      metrics: checkpointMetrics(training),
    })
  }

  /** The requested hyperparameters, with the trainer's choices in place of `auto`. */
  #settle({ epochs, batchSize }: NonNullable<TrainingProgress['settled']>) {
    const { learningRateMultiplier: rate } = this.#job.hyperparameters
    return { nEpochs: epochs, batchSize, learningRateMultiplier: rate === 'auto' ? 1 : rate }
  }

  /**
   * The estimated end of the last step, at the pace since this process has followed the training.
   */
  #estimate(step: number, steps: number): Date | null {
    const atMs = this.#clock.now()
    this.#first ??= { step, atMs }
    const done = step - this.#first.step
    if (done === 0) return null
    return new Date(atMs + ((atMs - this.#first.atMs) / done) * (steps - step))
  }

  async #succeed(result: TrainingResult): Promise<void> {
    const { checkpoints, adapter, trainedTokens } = result
    for (const { step, prefix, trainLoss, validationLoss } of checkpoints) {
      await this.#tuning.addCheckpoint(this.#job, {
        step,
        prefix,
        model: checkpointName(this.#model, step),
        metrics: {
          step,
          train_loss: trainLoss,
          ...(validationLoss !== null && { full_valid_loss: validationLoss }),
        },
      })
    }
    await this.#tuning.succeed(this.#job, {
      model: this.#model,
      prefix: adapter.prefix,
      trainedTokens,
    })
  }
}

function isRecorded({ step, steps, checkpoint, validationLoss }: TrainingProgress): boolean {
  const interval = Math.max(1, Math.ceil(steps / STEPS_RECORDED_MAX))
  const isNotable = checkpoint !== undefined || validationLoss !== undefined
  return isNotable || step === 1 || step === steps || step % interval === 0
}

function stepEvent(training: TrainingProgress): NewTuningEvent {
  const { step, steps, trainLoss, meanTokenAccuracy, validationLoss, learningRate } = training
  const validation =
    validationLoss === undefined ? '' : `, validation loss=${validationLoss.toFixed(2)}`
  return {
    name: `step:${step}`,
    type: 'metrics',
    message: `Step ${step}/${steps}: training loss=${trainLoss.toFixed(2)}${validation}`,
    data: {
      step,
      total_steps: steps,
      train_loss: trainLoss,
      learning_rate: learningRate,
      train_mean_token_accuracy: meanTokenAccuracy,
      ...(validationLoss !== undefined && { valid_loss: validationLoss }),
    },
  }
}

function checkpointMetrics({
  checkpoint,
  step,
  trainLoss,
  meanTokenAccuracy,
  validationLoss,
}: TrainingProgress): Readonly<Record<string, number>> {
  return {
    step: checkpoint?.step ?? step,
    train_loss: trainLoss,
    train_mean_token_accuracy: meanTokenAccuracy,
    ...(validationLoss !== undefined && { full_valid_loss: validationLoss }),
  }
}
