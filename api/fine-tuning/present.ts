import { unixSeconds } from '#shared/clock.ts'
import type {
  CheckpointRow,
  RequestedHyperparameters,
  TuningEventRow,
  TuningJobRow,
} from '#shared/db/schema/fine-tuning.ts'

import { checkpointName, tunedModelName } from './tuned-models.ts'

/** A fine-tuning job as clients read it. */
export function presentTuningJob(job: TuningJobRow): object {
  const hyperparameters = presentHyperparameters(job.hyperparameters)
  return {
    object: 'fine_tuning.job',
    id: job.id,
    model: job.model,
    created_at: unixSeconds(job.createdAt.getTime()),
    finished_at: seconds(job.finishedAt),
    fine_tuned_model: job.fineTunedModel,
    organization_id: job.organizationId,
    result_files: [],
    status: job.status,
    validation_file: job.validationFile,
    training_file: job.trainingFile,
    hyperparameters,
    trained_tokens: job.finishedAt === null ? null : job.trainedTokens,
    error: job.error,
    user_provided_suffix: job.suffix === '' ? null : job.suffix,
    seed: job.seed,
    estimated_finish: seconds(job.estimatedFinishAt),
    integrations: [],
    metadata: job.metadata,
    method: { type: 'supervised', supervised: { hyperparameters } },
  }
}

function presentHyperparameters(requested: RequestedHyperparameters): object {
  return {
    n_epochs: requested.nEpochs,
    batch_size: requested.batchSize,
    learning_rate_multiplier: requested.learningRateMultiplier,
  }
}

/** An event as clients read it. */
export function presentTuningEvent(event: TuningEventRow): object {
  return {
    object: 'fine_tuning.job.event',
    id: event.id,
    created_at: unixSeconds(event.createdAt.getTime()),
    level: event.level,
    message: event.message,
    data: event.data,
    type: event.type,
  }
}

/** A checkpoint as clients read it. */
export function presentCheckpoint(job: TuningJobRow, checkpoint: CheckpointRow): object {
  return {
    object: 'fine_tuning.job.checkpoint',
    id: checkpoint.id,
    created_at: unixSeconds(checkpoint.createdAt.getTime()),
    fine_tuned_model_checkpoint: checkpointName(tunedModelName(job), checkpoint.step),
    fine_tuning_job_id: job.id,
    metrics: checkpoint.metrics,
    step_number: checkpoint.step,
  }
}

const OLDER_STATES: Readonly<Record<TuningJobRow['status'], string>> = {
  validating_files: 'pending',
  queued: 'pending',
  running: 'running',
  paused: 'pending',
  succeeded: 'succeeded',
  failed: 'failed',
  cancelled: 'cancelled',
}

/** A job in the format of 2021; `files` are its training and validation files. */
export function presentFineTune(
  job: TuningJobRow,
  files: { readonly training: readonly object[]; readonly validation: readonly object[] },
  events?: readonly TuningEventRow[],
): object {
  const { nEpochs, batchSize, learningRateMultiplier } = job.hyperparameters
  const number = (value: number | 'auto'): number | null => (value === 'auto' ? null : value)
  return {
    object: 'fine-tune',
    id: job.id,
    model: job.model,
    created_at: unixSeconds(job.createdAt.getTime()),
    updated_at: unixSeconds(job.updatedAt.getTime()),
    fine_tuned_model: job.fineTunedModel,
    organization_id: job.organizationId,
    status: OLDER_STATES[job.status],
    hyperparams: {
      n_epochs: number(nEpochs),
      batch_size: number(batchSize),
      learning_rate_multiplier: number(learningRateMultiplier),
      prompt_loss_weight: 0,
    },
    training_files: files.training,
    validation_files: files.validation,
    result_files: [],
    ...(events !== undefined && { events: events.map(presentFineTuneEvent) }),
  }
}

/** An event in the format of 2021. */
export function presentFineTuneEvent(event: TuningEventRow): object {
  return {
    object: 'fine-tune-event',
    created_at: unixSeconds(event.createdAt.getTime()),
    level: event.level,
    message: event.message,
  }
}

function seconds(moment: Date | null): number | null {
  return moment === null ? null : unixSeconds(moment.getTime())
}
