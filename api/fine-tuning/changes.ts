import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'

import type { JobOwner } from '#api/jobs/background-jobs.ts'
import { hasEnded } from '#api/jobs/job.ts'
import type { JobStore } from '#api/jobs/job-store.ts'
import { callerOf } from '#api/v1/request-context.ts'
import type { TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import { type CreateServices, runIdOf, startRun } from './create-job.ts'
import type { RunServices } from './run.ts'
import type { FINE_TUNE_ID, JOB_ID } from './schemas.ts'
import type { TunedModels } from './tuned-models.ts'
import { OPEN_STATES } from './tuning-states.ts'
import type { TuningStore } from './tuning-store.ts'

/** The collaborators of the surface. */
export interface TuningServices extends CreateServices, RunServices {
  readonly tuning: TuningStore
  readonly models: TunedModels
  readonly jobs: JobStore
}

/** The collaborators of resuming a job. */
export type ResumeServices = Pick<
  TuningServices,
  'tuning' | 'jobs' | 'background' | 'clock' | 'limits'
>

/** The job that the path of a request names. */
export async function jobOf(request: FastifyRequest, tuning: TuningStore): Promise<TuningJobRow> {
  const params = request.params as Partial<Static<typeof JOB_ID> & Static<typeof FINE_TUNE_ID>>
  const id = params.job_id ?? params.fine_tune_id ?? ''
  const job = await tuning.find(callerOf(request).organizationId, id)
  if (job === undefined) throw noSuchJob(id)
  return job
}

/** Cancels a job, and its training within a step. Throws when it has ended. */
export async function cancelTuningJob(
  { tuning, jobs }: Pick<TuningServices, 'tuning' | 'jobs'>,
  job: TuningJobRow,
): Promise<TuningJobRow> {
  const cancelled = await tuning.cancel(job.id)
  if (cancelled === undefined) throw await notPossible(tuning, job, 'cancelled')
  await jobs.cancel(job.organizationId, runIdOf(job))
  return cancelled
}

/** Stops the training of a job, which keeps its last checkpoint. Throws when it does not run. */
export async function pauseTuningJob(
  { tuning, jobs }: Pick<TuningServices, 'tuning' | 'jobs'>,
  job: TuningJobRow,
): Promise<TuningJobRow> {
  const paused = await pause(tuning, job)
  if (paused === undefined) throw await notPossible(tuning, job, 'paused')
  await jobs.cancel(job.organizationId, runIdOf(job))
  return paused
}

function pause(tuning: TuningStore, { id, run }: TuningJobRow): Promise<TuningJobRow | undefined> {
  return tuning.move(id, {
    from: ['validating_files', 'queued', 'running'],
    to: 'paused',
    event: { name: `paused:${run}`, message: 'Fine-tuning job paused' },
    changes: { estimatedFinishAt: null },
  })
}

/**
 * Starts another run of a paused job on behalf of `owner`, continuing at its last checkpoint.
 * Throws when the job is not paused.
 */
export async function resumeTuningJob(
  owner: JobOwner,
  services: ResumeServices,
  job: TuningJobRow,
): Promise<TuningJobRow> {
  const { tuning, jobs } = services
  const earlier = await jobs.find(job.organizationId, runIdOf(job))
  if (job.status === 'paused' && earlier !== undefined && !hasEnded(earlier)) throw stillPausing()
  const isValidated = (await tuning.countedExamples(job.id)) > 0
  const resumed = await tuning.move(job.id, {
    from: ['paused'],
    to: isValidated ? 'queued' : 'validating_files',
    event: { name: `resumed:${job.run}`, message: 'Fine-tuning job resumed' },
    changes: { run: job.run + 1 },
  })
  if (resumed === undefined) throw await notPossible(tuning, job, 'resumed')
  try {
    await startRun(owner, services, resumed)
  } catch (error) {
    // A job without a run would be cancelled, and its checkpoints deleted.
    await pause(tuning, resumed)
    throw error
  }
  return resumed
}

/** The refusal of an id that names no job of the organization. */
export function noSuchJob(id: string, param = 'fine_tuning_job_id'): ServiceError {
  return failure.notFound(`Could not find fine tune: ${id.slice(0, 100)}`, {
    param,
    code: 'fine_tune_not_found',
  })
}

async function notPossible(
  tuning: TuningStore,
  job: TuningJobRow,
  change: string,
): Promise<ServiceError> {
  const status = (await tuning.find(job.organizationId, job.id))?.status ?? job.status
  const isOpen = OPEN_STATES.some((open) => open === status)
  return failure.conflict(
    `A job with status '${status}' cannot be ${change}${isOpen ? '' : ': it has ended'}.`,
    { code: 'invalid_status', shouldRetry: false },
  )
}

function stillPausing(): ServiceError {
  return failure.conflict('The job is about to pause. Try again in a second.', {
    code: 'pausing',
    retryAfterSeconds: 1,
    shouldRetry: true,
  })
}
