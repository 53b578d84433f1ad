import { and, count, countDistinct, eq, inArray } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import type { TuningTables } from '#shared/db/schema/fine-tuning.ts'

import { OPEN_STATES } from './tuning-states.ts'

/** The most jobs that an organization may have. */
export interface TuningLimits {
  /** Unfinished jobs. */
  readonly openMax: number
  /** Unfinished jobs, and jobs whose models are stored. */
  readonly tunedMax: number
}

/**
 * The limit that an organization has reached, if any. The organization is locked until the
 * transaction ends, so that only one request at a time counts its jobs.
 */
export async function findReachedLimit(
  tx: Db,
  { jobs, models, organizations }: TuningTables,
  { organizationId, openMax, tunedMax }: TuningLimits & { readonly organizationId: string },
): Promise<keyof TuningLimits | undefined> {
  await tx
    .select({ id: organizations.id })
    .from(organizations)
    .where(eq(organizations.id, organizationId))
    .for('no key update')
  const isOpen = and(eq(jobs.organizationId, organizationId), inArray(jobs.status, OPEN_STATES))
  const [{ open } = { open: 0 }] = await tx.select({ open: count() }).from(jobs).where(isOpen)
  if (open >= openMax) return 'openMax'
  const [{ tuned } = { tuned: 0 }] = await tx
    .select({ tuned: countDistinct(models.jobId) })
    .from(models)
    .where(eq(models.organizationId, organizationId))
  return open + tuned >= tunedMax ? 'tunedMax' : undefined
}
