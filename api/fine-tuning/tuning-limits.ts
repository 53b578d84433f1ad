import { and, count, countDistinct, eq, inArray, lt, notExists, type SQL } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import { secondsFromNow } from '#shared/db/expressions.ts'
import type { TuningTables } from '#shared/db/schema/fine-tuning.ts'

import { ENDED_STATES, OPEN_STATES } from './tuning-states.ts'

/** The most jobs that an organization may have. */
export interface TuningLimits {
  /** Unfinished jobs. */
  readonly openMax: number
  /** Unfinished jobs, and jobs whose models are stored. */
  readonly tunedMax: number
}

/** Jobs of one organization, including ended ones. */
export const JOBS_KEPT_MAX = 10_000
const KEPT_SECONDS = 30 * 86_400

/**
 * The limit that an organization has reached, if any. The organization is locked until the
 * transaction ends, so that only one request at a time counts its jobs.
 */
export async function findReachedLimit(
  tx: Db,
  { jobs, models, organizations }: TuningTables,
  { organizationId, openMax, tunedMax }: TuningLimits & { readonly organizationId: string },
): Promise<keyof TuningLimits | 'keptMax' | undefined> {
  await tx
    .select({ id: organizations.id })
    .from(organizations)
    .where(eq(organizations.id, organizationId))
    .for('no key update')
  const isOpen = and(eq(jobs.organizationId, organizationId), inArray(jobs.status, OPEN_STATES))
  const [{ open } = { open: 0 }] = await tx.select({ open: count() }).from(jobs).where(isOpen)
  if (open >= openMax) return 'openMax'
  const isOwn = eq(jobs.organizationId, organizationId)
  const [{ kept } = { kept: 0 }] = await tx.select({ kept: count() }).from(jobs).where(isOwn)
  if (kept >= JOBS_KEPT_MAX) return 'keptMax'
  const [{ tuned } = { tuned: 0 }] = await tx
    .select({ tuned: countDistinct(models.jobId) })
    .from(models)
    .where(eq(models.organizationId, organizationId))
  return open + tuned >= tunedMax ? 'tunedMax' : undefined
}

/** Matches jobs that ended long enough ago and have no model left. */
export function isOver(
  db: Db,
  { jobs, models }: Pick<TuningTables, 'jobs' | 'models'>,
): SQL | undefined {
  const left = db.select({ id: models.jobId }).from(models).where(eq(models.jobId, jobs.id))
  return and(
    inArray(jobs.status, [...ENDED_STATES]),
    lt(jobs.updatedAt, secondsFromNow(-KEPT_SECONDS)),
    notExists(left),
  )
}
