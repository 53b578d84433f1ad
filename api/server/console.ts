import { adminPlugin } from '#api/console/admin-plugin.ts'
import type { ConsoleArea } from '#api/console/api.ts'
import { journalArea } from '#api/console/areas/journals.ts'
import { keyArea } from '#api/console/areas/keys.ts'
import { modelArea } from '#api/console/areas/models.ts'
import { organizationArea } from '#api/console/areas/organizations.ts'
import { queueArea } from '#api/console/areas/queues.ts'
import { seriesArea } from '#api/console/areas/series.ts'
import { usageArea } from '#api/console/areas/usage.ts'
import { userArea } from '#api/console/areas/users.ts'
import { workArea } from '#api/console/areas/work.ts'
import { openAdminSessions } from '#api/console/sessions.ts'
import { retryDeadLetter } from '#api/jobs/retry-dead-letter.ts'
import { tablePrefixOf } from '#shared/db/migrate.ts'
import { ReplyWriter } from '#shared/queue/reply-writer.ts'

import { administratorsOf } from './administrators.ts'
import type { Surface } from './app.ts'
import type { Services } from './services.ts'
import type { UserServer } from './user-server.ts'

/** The console at `/admin`. */
export function consoleSurface(services: Services, users: UserServer, version: string): Surface {
  const { catalogue, submitter, config, redis, incidents, series } = services
  const { checkPassword, roleNow, endSession, audit } = administratorsOf(users.services)
  const plugin = adminPlugin({
    catalogue,
    version,
    checkPassword,
    audit,
    series,
    areas: areasOf(services, users),
    onCatalogueChange: (listener) => catalogue.onChange(listener),
    dependencies: services.dependencies,
    slowAfterMs: config.server.slowRequestSeconds * 1000,
    queues: submitter,
    incidents: () => incidents.read(),
    outbox: () => users.services.outbox.state(),
    guard: {
      adminToken: config.server.adminToken,
      findAdministrator: (token) => users.findAdministrator(token),
      roleNow,
      endSession,
      sessions: openAdminSessions(redis, config.infra.redisPrefix),
      guesses: users.services.guesses,
    },
  })
  return { prefixes: ['/admin'], plugin }
}

function areasOf(services: Services, users: UserServer): readonly ConsoleArea[] {
  const { database, config, catalogue, clock, redis, queueKeys, log, cipher } = services
  const { submitter, apiKeys, batches, background, series, lists } = services
  const tables = { pool: database.pool, prefix: tablePrefixOf(config.database.tablePrefix) }
  return [
    seriesArea({ series }),
    organizationArea({ ...tables, organizations: users.organizations }),
    userArea({ ...tables, auth: users.services }),
    keyArea({ ...tables, apiKeys, catalogue, clock, limits: config.limits }),
    usageArea({ ...tables, pool: lists.pool, catalogue, clock, quotas: services.quotas }),
    queueArea({
      catalogue,
      queues: submitter,
      openReplies: (server) => new ReplyWriter(server.redis, log, () => {}, cipher),
      retry: (jobId) => beginRetry(services, jobId),
    }),
    workArea({
      ...tables,
      batches,
      ...background,
      clock,
      limits: config.tuning,
    }),
    journalArea({ ...tables, pool: lists.pool }),
    modelArea({ catalogue, redis, keys: queueKeys, workers: () => submitter.workers() }),
  ]
}

/**
 * Runs a dead letter after the answer; its result is in the log and in the list of dead letters.
 */
async function beginRetry(services: Services, jobId: string): Promise<void> {
  const { submitter, log } = services
  const { deadLetters } = submitter
  const { done } = await retryDeadLetter({ ...services, deadLetters }, jobId)
  const operation = 'job.retryDeadLetter'
  done.then(
    () => log.info({ operation, jobId }, 'dead letter was run again'),
    (err: unknown) => log.warn({ operation, jobId, err }, 'dead letter failed again'),
  )
}
