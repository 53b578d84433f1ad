import { lt, or } from 'drizzle-orm'

import { sweepOrphans } from '#api/files/sweep.ts'
import { sweepMedia } from '#api/media/sweep.ts'
import type { Db } from '#shared/db/client.ts'
import type { OrganizationTables } from '#shared/db/schema/organizations.ts'

import type { Services } from './services.ts'

const INTERVAL_MS = 3_600_000
// Delayed, so that processes that start together do not all begin with maintenance.
const FIRST_DELAY_MS_MAX = 600_000

/**
 * Creates partitions, deletes expired data and sweeps orphaned objects, every hour in every API
 * process: each task is idempotent. Returns the function that stops it.
 */
export function startMaintenance(services: Services): () => void {
  let timer = setTimeout(() => void run(), Math.random() * FIRST_DELAY_MS_MAX)
  timer.unref()
  async function run(): Promise<void> {
    for (const [name, task] of Object.entries(TASKS)) {
      await task(services).catch((error: unknown) =>
        services.log.warn({ operation: `maintenance.${name}`, err: error }, 'maintenance failed'),
      )
    }
    timer = setTimeout(() => void run(), INTERVAL_MS)
    timer.unref()
  }
  return () => clearTimeout(timer)
}

const TASKS: Readonly<Record<string, (services: Services) => Promise<unknown>>> = {
  activities: ({ activities, config, clock }) =>
    activities.maintain(config.content.activitiesRetentionDays, clock.now()),
  uploads: ({ uploads }) => uploads.deleteExpired(),
  files: (services) => sweepOrphans(services),
  media: (services) => sweepMedia(services),
  jobs: ({ background }) => background.jobs.sweep(),
  fineTuning: async ({ background, store }) => {
    await background.tuning.sweep()
    const { sweepTuningObjects } = await import('#api/fine-tuning/delete-model.ts')
    await sweepTuningObjects({ store, tuning: background.tuning })
  },
  organizations: ({ database, organizationTables }) => sweepEnded(database.db, organizationTables),
  answers: ({ background }) => background.answers.sweep(),
  conversations: ({ background }) => background.conversations.sweep(),
  webhooks: ({ background }) => background.webhooks.sweep(),
  usage: async ({ usage, config, clock }) => {
    const { usageRetentionDays: days } = config.content
    if (days !== undefined) await usage.deleteBefore(new Date(clock.now() - days * DAY_MS))
  },
}

const DAY_MS = 86_400_000
/** Lists show ended keys and invitations for this time. */
const KEPT_MS = 30 * DAY_MS

/**
 * Deletes API keys and invitations that ended more than 30 days ago: an organization may create and
 * end any number of them.
 */
export async function sweepEnded(
  db: Db,
  { apiKeys, invitations }: Pick<OrganizationTables, 'apiKeys' | 'invitations'>,
): Promise<void> {
  const latest = new Date(Date.now() - KEPT_MS)
  await db.delete(apiKeys).where(lt(apiKeys.revokedAt, latest))
  const { acceptedAt, endedAt, expiresAt } = invitations
  const hasEnded = or(lt(acceptedAt, latest), lt(endedAt, latest), lt(expiresAt, latest))
  await db.delete(invitations).where(hasEnded)
}
