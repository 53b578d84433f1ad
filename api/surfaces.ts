import { timeOrderedId } from '#shared/ids.ts'
import { listWorkers } from '#shared/queue/liveness.ts'
import { createUrlSigner } from '#shared/storage/signed-url.ts'

import type { NewActivity } from './activities/activities.ts'
import { digestOf, OWN_GENERATOR } from './activities/activity.ts'
import { activitiesPlugin } from './activities/routes.ts'
import type { Surface } from './app.ts'
import { authPlugin } from './auth/plugin.ts'
import { dashboardPlugin } from './dashboard/plugin.ts'
import { filesPlugin, type FileChange } from './files/routes.ts'
import { inferencePlugin } from './inference/plugin.ts'
import { mediaPlugin } from './media/routes.ts'
import type { Services } from './services.ts'
import type { UserServer } from './user-server.ts'
import { v1Plugin } from './v1/plugin.ts'

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
  return v1Plugin({ ...services, verifyAccessToken: (token) => users.verifyAccess(token) }, [
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
    mediaPlugin({ ...services, signer }),
  ])
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
