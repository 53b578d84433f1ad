import { authTables } from '#shared/db/schema/auth.ts'
import { timeOrderedId } from '#shared/ids.ts'
import { listWorkers } from '#shared/queue/liveness.ts'
import { createUrlSigner } from '#shared/storage/signed-url.ts'

import type { NewActivity } from './activities/activities.ts'
import { digestOf, OWN_GENERATOR } from './activities/activity.ts'
import { activitiesPlugin } from './activities/routes.ts'
import type { Surface } from './app.ts'
import { BatchDriver } from './batches/driver.ts'
import { batchesPlugin } from './batches/routes.ts'
import { authPlugin } from './auth/plugin.ts'
import { dashboardPlugin } from './dashboard/plugin.ts'
import { filesPlugin, type FileChange } from './files/routes.ts'
import { createBatchExecutor } from './inference/batchable.ts'
import { inferencePlugin } from './inference/plugin.ts'
import { createLimiter, type Limiter } from './limits/limiter.ts'
import { mediaPlugin } from './media/routes.ts'
import { openOrganizations, type Organizations } from './organizations/organizations.ts'
import { organizationsPlugin } from './organizations/routes.ts'
import type { Services } from './services.ts'
import { usagePlugin } from './usage/routes.ts'
import type { UserServer } from './user-server.ts'
import { createIdempotencyGate } from './v1/idempotency.ts'
import { openIdempotencyStore } from './v1/idempotency-store.ts'
import { v1Plugin, type Gate } from './v1/plugin.ts'

/** The surfaces of the API and where they are mounted. */
export function surfacesOf(services: Services, users: UserServer): readonly Surface[] {
  return [
    { prefixes: ['/v1'], plugin: v1(services, users) },
    { prefixes: ['/', '/auth/v1'], plugin: authPlugin(users.services) },
    { prefixes: ['/admin/queues'], plugin: dashboard(services, users) },
  ]
}

function v1(services: Services, users: UserServer): Surface['plugin'] {
  const { redis, queueKeys, config } = services
  const signer = createUrlSigner(config.server.urlSigningSecret)
  const shared = {
    ...services,
    verifyAccessToken: (token: string) => users.verifyAccess(token),
    // A replayed answer costs nothing, so it comes before the limits.
    gates: [idempotencyOf(services), limiterOf(services)],
  }
  return v1Plugin(shared, [
    inferencePlugin({
      ...services,
      workers: () => listWorkers(redis, queueKeys),
      signer,
      config: { deadlineSeconds: config.inference.deadlineSeconds },
    }),
    filesPlugin({
      ...services,
      storageBytesMax: config.content.storageBytesMax,
      onChange: (change) => recordFileChange(services, change),
    }),
    activitiesPlugin(services),
    usagePlugin(services),
    organizationsPlugin({ organizations: organizationsOf(services) }),
    mediaPlugin({ ...services, signer }),
    batchesPlugin(services),
  ])
}

/** Begins to work at the batches; every API process does. */
export function startBatches(services: Services): BatchDriver {
  const { deadlineSeconds } = services.config.inference
  return new BatchDriver({
    ...services,
    lines: services.batchLines,
    execute: createBatchExecutor({ ...services, config: { deadlineSeconds } }),
  })
}

function idempotencyOf(services: Services): Gate {
  const { config, redis } = services
  return createIdempotencyGate({
    ...services,
    idempotency: openIdempotencyStore(redis, config.infra.redisPrefix),
    deadlineSeconds: config.inference.deadlineSeconds,
  })
}

function organizationsOf({ database, config, organizationTables }: Services): Organizations {
  const { users } = authTables(config.database.tablePrefix)
  return openOrganizations(database.db, organizationTables, users)
}

function limiterOf(services: Services): Limiter {
  const { config, usage } = services
  return createLimiter({
    ...services,
    prefix: config.infra.redisPrefix,
    limits: config.limits,
    deadlineSeconds: config.inference.deadlineSeconds,
    tokensSince: (organizationId, sinceMs) => usage.tokensSince(organizationId, sinceMs),
  })
}

function dashboard(
  { catalogue, submitter, config }: Services,
  users: UserServer,
): Surface['plugin'] {
  return dashboardPlugin({
    catalogue,
    queueOf: (kind, modelId) => submitter.producer.queue(kind, modelId),
    guard: {
      adminToken: config.server.adminToken,
      isAdministrator: (token) => users.isAdministrator(token),
    },
  })
}

/** Files that come and go stand in the organization's own activities; a failure there breaks nothing. */
function recordFileChange(
  { activities, clock, log }: Services,
  { type, file, actor }: FileChange,
): void {
  const nowMs = clock.now()
  const content = {
    type: type === 'stored' ? 'Create' : 'Delete',
    actor,
    object: { type: 'Document', id: `file:${file.id}`, purpose: file.purpose, bytes: file.bytes },
    published: new Date(nowMs).toISOString(),
    generator: OWN_GENERATOR,
  }
  const activity: NewActivity = {
    id: timeOrderedId('act_', nowMs),
    type: content.type,
    actorId: actor,
    objectId: content.object.id,
    publishedMs: nowMs,
    content,
    digest: digestOf(content),
  }
  activities
    .record(file.organizationId, [activity], { nowMs, pathOf: () => 'id' })
    .catch((error: unknown) => log.warn({ err: error, fileId: file.id }, 'activity not recorded'))
}
