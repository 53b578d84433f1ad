import type { FastifyInstance, FastifyPluginAsync, FastifyRequest } from 'fastify'

import { activitiesPlugin } from '#api/activities/routes.ts'
import { BatchDriver } from '#api/batches/driver.ts'
import { batchesPlugin } from '#api/batches/routes.ts'
import { multipartUploadsPlugin } from '#api/files/multipart-uploads.ts'
import { type FileChange, filesPlugin } from '#api/files/routes.ts'
import { fineTuningPlugin } from '#api/fine-tuning/routes.ts'
import { createBatchExecutor } from '#api/inference/batchable.ts'
import { createExampleReader } from '#api/inference/chat/training-example.ts'
import { presentErrorByVersion } from '#api/inference/messages/messages-errors.ts'
import { contextLengths } from '#api/inference/models.ts'
import { inferencePlugin } from '#api/inference/plugin.ts'
import { createImageIntake } from '#api/inference/request-images.ts'
import { itemsWithIds } from '#api/inference/responses/response-thread.ts'
import { ITEM } from '#api/inference/responses/responses-input.ts'
import { rootDialects } from '#api/inference/root-dialects.ts'
import { respondAsync } from '#api/jobs/respond-async.ts'
import { jobsPlugin } from '#api/jobs/routes.ts'
import { createLimiter, subjectOf } from '#api/limits/limiter.ts'
import { checkQuota, type QuotaState, quotaStates, quotasOf } from '#api/limits/quotas.ts'
import { mediaPlugin } from '#api/media/routes.ts'
import { organizationsPlugin } from '#api/organizations/routes.ts'
import { conversationsPlugin } from '#api/stored/conversation-routes.ts'
import { usagePlugin } from '#api/usage/routes.ts'
import { baseNameOf } from '#api/usage/usage-meter.ts'
import type { NoteEvent } from '#api/v1/events.ts'
import { createIdempotencyGate } from '#api/v1/idempotency.ts'
import { openIdempotencyStore } from '#api/v1/idempotency-store.ts'
import { type Gate, v1Plugin } from '#api/v1/plugin.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { eventIdOf } from '#api/webhooks/event-types.ts'
import { webhooksPlugin } from '#api/webhooks/routes.ts'
import { servingIdOf } from '#shared/catalogue.ts'
import { createUrlSigner } from '#shared/storage/signed-url.ts'

import type { Surface } from './app.ts'
import { invitationMailerOf } from './invitations.ts'
import { countUse } from './quotas.ts'
import { announce, noteDisabledEndpoint, noteEvents } from './recorded-events.ts'
import type { Services } from './services.ts'
import type { UserServer } from './user-server.ts'

/** `/v1`, and the routes of other dialects at the root. */
export function inferenceSurfaces(
  services: Services,
  users: UserServer,
  version: string,
): readonly Surface[] {
  const { config } = services
  const signer = createUrlSigner(config.server.urlSigningSecret)
  const note = noteEvents(services)
  const { organizations, invitations } = users
  const shared = {
    ...services,
    verifyAccessToken: (token: string, outlasts: boolean) => users.verifyAccess(token, outlasts),
    unknownFields: config.inference.unknownParameters,
    guesses: users.services.guesses,
    // Before the limits: a replayed answer costs nothing.
    gates: [idempotencyOf(services), limiterOf(services)],
    respondAsync: respondAsync({ ...services, ...services.background }),
    storedRequests: services.background.storedRequests,
    presentError: presentErrorByVersion,
  }
  const inferenceServices = { ...inferenceOf(services), signer, note }
  const v1 = v1Plugin(shared, [
    inferencePlugin(inferenceServices),
    ...fileSurfaces(services, note),
    activitiesPlugin(services),
    usagePlugin({ ...services, quotaStates: (request) => quotasFor(services, request) }),
    organizationsPlugin({
      organizations,
      invitations,
      note,
      clock: services.clock,
      mailer: invitationMailerOf(users.services),
    }),
    mediaPlugin({ ...services, signer }),
    jobsPlugin(services.background),
    webhooksPlugin({
      ...services.background,
      clock: services.clock,
      ...config.content.webhooks,
      wake: () => services.background.wakeSender(),
    }),
    conversationsPlugin({
      ...services.background,
      clock: services.clock,
      form: { schema: ITEM, withIds: itemsWithIds },
    }),
    tuningOf(services),
    batchesPlugin({ ...services, storageBytesMax: config.content.storageBytesMax }),
  ])
  const root = v1Plugin(shared, [rootDialects(inferenceServices, version)], {
    answersUnknownPaths: false,
  })
  return [
    { prefixes: ['/v1'], plugin: v1 },
    { prefixes: ['/'], plugin: root },
  ]
}

function limiterOf(services: Services): Gate {
  const { catalogue, submitter } = services
  return createLimiter({
    ...services,
    ...services.quotas,
    boundsOf: (name) => {
      const model = catalogue.find(baseNameOf(name))
      if (model === undefined) return undefined
      const contextLength = contextLengths(submitter.workersSeen).get(servingIdOf(model))
      return { price: model.price, contextLength }
    },
  })
}

function inferenceOf(services: Services) {
  const { config, submitter, background } = services
  return {
    ...services,
    images: createImageIntake(config.inference.images),
    workers: () => submitter.workers(),
    workersSeen: () => submitter.workersSeen,
    jobsInFlight: () => submitter.jobsInFlight,
    tunedModels: background.tunedModels,
    stored: { ...background, isDefault: config.content.storesResponses },
    config: {
      deadlineSeconds: config.inference.deadlineSeconds,
      anonymousUsersMayCreateKeys: config.limits.anonymous.mayCreateKeys,
      dialectsOff: config.inference.dialectsOff,
    },
    publicUrl: config.auth.site.externalUrl,
  }
}

function fileSurfaces(services: Services, note: NoteEvent): readonly FastifyPluginAsync[] {
  const fileServices = {
    ...services,
    storageBytesMax: services.config.content.storageBytesMax,
    onChange: (change: FileChange) => recordFileChange(services, note, change),
  }
  return [filesPlugin(fileServices), multipartUploadsPlugin(fileServices)]
}

function tuningOf(services: Services): FastifyPluginAsync {
  return fineTuningPlugin({
    ...services,
    ...services.background,
    limits: services.config.tuning,
    models: services.background.tunedModels,
    readExample: createExampleReader(),
  })
}

/** Starts the batch driver; every process that serves inference runs one. */
function startBatches(services: Services): BatchDriver {
  const { deadlineSeconds } = services.config.inference
  return new BatchDriver({
    ...services,
    announce: (batch, end) =>
      services.background.announce([
        {
          organizationId: batch.organizationId,
          type: `batch.${end}`,
          id: eventIdOf(
            (batch.finalizingAt ?? batch.cancellingAt ?? batch.createdAt).getTime(),
            `${batch.id} ${end}`,
          ),
          data: { id: batch.id },
        },
      ]),
    lines: services.batchLines,
    execute: createBatchExecutor({
      ...services,
      tunedModels: services.background.tunedModels,
      workersSeen: () => services.submitter.workersSeen,
      images: createImageIntake(services.config.inference.images),
      config: { deadlineSeconds },
      unknownFields: services.config.inference.unknownParameters,
      noteUse: (organizationId, use) => countUse(services, organizationId, { requests: 1, ...use }),
      checkQuota: (organizationId) => checkQuota(services.quotas, organizationId),
    }),
  })
}

/** Starts to run batches and background jobs through the routes of the application. */
export function startInference(services: Services, app: FastifyInstance): BatchDriver {
  services.background.start(app, {
    // The request was counted when the job was created.
    noteUse: (organizationId, use) => countUse(services, organizationId, { requests: 0, ...use }),
    onDisabled: (endpoint) => noteDisabledEndpoint(services, endpoint),
  })
  return startBatches(services)
}

/** The quotas of the caller's key and organization. */
async function quotasFor(services: Services, request: FastifyRequest): Promise<QuotaState[]> {
  const { quotas, clock, config } = services
  const caller = callerOf(request)
  const ofOrganization = await quotas.organizationQuotas(caller.organizationId)
  return quotaStates(
    quotas,
    subjectOf(caller, request, clock.now()),
    quotasOf(config.limits, caller.limits, ofOrganization),
  )
}

function idempotencyOf(services: Services): Gate {
  const { config, redis, cipher, submitter } = services
  return createIdempotencyGate({
    ...services,
    idempotency: openIdempotencyStore(
      redis,
      config.infra.redisPrefix,
      config.content.recordedBytesMax,
      cipher,
    ),
    deleteReplies: (jobs) => submitter.deleteReplies(jobs),
    deadlineSeconds: config.inference.deadlineSeconds,
  })
}

/** Records stored and deleted files as activities of the organization, and announces them. */
function recordFileChange(
  services: Services,
  note: NoteEvent,
  { type, file, request }: FileChange,
): void {
  const { id, purpose, bytes } = file
  const { organizationId } = callerOf(request)
  const eventId = eventIdOf(services.clock.now(), `${id} ${type}`)
  announce(services, { organizationId, id: eventId, type: `file.${type}`, data: { id, purpose } })
  note(request, {
    type: type === 'stored' ? 'Create' : 'Delete',
    event: `file.${type}`,
    object: { type: 'Document', id: `file:${id}`, purpose, bytes },
  })
}
