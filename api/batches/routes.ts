import type { FastifyPluginAsync, FastifyRequest } from 'fastify'
import type { Static } from 'typebox'

import { requireUncountedCaller } from '#api/limits/own-limits.ts'
import { ROW_BYTES, storageLimitExceeded } from '#api/stored/stored-bytes-store.ts'
import { checkMetadata } from '#api/v1/metadata-field.ts'
import { answerHeadOf, callerOf, requireScope } from '#api/v1/request-context.ts'
import type { Clock } from '#shared/clock.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import { BATCH_ENDPOINTS, presentBatch } from './batch.ts'
import type { Batches } from './batch-store.ts'
import { type BATCH_ID, CANCEL, CREATE, type CREATE_BODY, LIST, RETRIEVE } from './route-schemas.ts'

interface BatchServices {
  readonly batches: Batches
  readonly clock: Pick<Clock, 'now'>
  readonly files: {
    find(
      organizationId: string,
      id: string,
    ): Promise<
      { readonly objectKey: string; readonly purpose: string; readonly bytes: number } | undefined
    >
    usedBytes(organizationId: string): Promise<number>
  }
  /** The storage limit of an organization. */
  readonly storageBytesMax: number
}

const INPUT_BYTES_MAX = 200 * 1024 * 1024
const OPEN_BATCHES_MAX = 100
const WINDOW_SECONDS = 24 * 3600
const LIST_LIMIT = 20
const SCOPE = { scope: 'batches' } as const

/** `/batches`: create, list, retrieve, cancel. */
export function batchesPlugin(services: BatchServices): FastifyPluginAsync {
  const { batches } = services
  return async (app) => {
    app.post('/batches', { schema: CREATE, config: SCOPE }, (request) => create(services, request))

    app.get('/batches', { schema: LIST, config: SCOPE }, async (request) => {
      const { limit = LIST_LIMIT, after } = request.query as { limit?: number; after?: string }
      const page = { limit, ...(after !== undefined && { after }) }
      const { organizationId } = callerOf(request)
      if (after !== undefined && (await batches.find(organizationId, after)) === undefined) {
        throw noSuchBatch(after, 'after')
      }
      const { rows, hasMore } = await batches.list(organizationId, page)
      return {
        object: 'list',
        data: rows.map(presentBatch),
        first_id: rows[0]?.id ?? null,
        last_id: rows.at(-1)?.id ?? null,
        has_more: hasMore,
      }
    })

    app.get('/batches/:batch_id', { schema: RETRIEVE, config: SCOPE }, async (request) => {
      const { batch_id: id } = request.params as Static<typeof BATCH_ID>
      const batch = await batches.find(callerOf(request).organizationId, id)
      if (batch === undefined) throw noSuchBatch(id)
      return presentBatch(batch)
    })

    app.post('/batches/:batch_id/cancel', { schema: CANCEL, config: SCOPE }, async (request) => {
      const { batch_id: id } = request.params as Static<typeof BATCH_ID>
      const batch = await batches.cancel(callerOf(request).organizationId, id)
      if (batch === undefined) throw noSuchBatch(id)
      if (batch.status !== 'cancelling' && batch.status !== 'cancelled') {
        throw failure.conflict(`Cannot cancel a batch with status '${batch.status}'.`, {
          shouldRetry: false,
        })
      }
      return presentBatch(batch)
    })
  }
}

async function create(services: BatchServices, request: FastifyRequest): Promise<object> {
  const { batches, clock } = services
  const caller = callerOf(request)
  const { organizationId, modelIds, apiKeyId, userId } = caller
  const body = request.body as Static<typeof CREATE_BODY>
  requireScope(caller, BATCH_ENDPOINTS[body.endpoint] ?? 'batches')
  requireUncountedCaller(caller, 'batches')
  const id = answerHeadOf(request, clock).newId('batch_')
  // A process that died may have created the batch of this Idempotency-Key.
  const earlier = request.context.durable && (await batches.find(organizationId, id))
  if (earlier) return presentBatch(earlier)
  checkMetadata(body.metadata)
  await mustHaveRoom(services, organizationId)
  const batch = await batches.create(
    {
      id,
      organizationId,
      modelIds,
      apiKeyId,
      userId,
      endpoint: body.endpoint,
      inputFileId: body.input_file_id,
      inputObjectKey: await inputOf(services, organizationId, body.input_file_id),
      completionWindow: body.completion_window,
      windowSeconds: WINDOW_SECONDS,
      metadata: body.metadata ?? null,
      outputRetentionSeconds: body.output_expires_after?.seconds ?? null,
    },
    OPEN_BATCHES_MAX,
  )
  if (batch === undefined) throw tooManyBatches()
  return presentBatch(batch)
}

/** Outputs have no quota; without this limit one input could produce unlimited outputs. */
async function mustHaveRoom(
  { files, storageBytesMax }: BatchServices,
  organizationId: string,
): Promise<void> {
  if ((await files.usedBytes(organizationId)) < storageBytesMax) return
  throw failure.invalidRequest(
    "There is no room for the output: your organization's storage is full. Delete files that you no longer need.",
    { code: 'storage_limit_exceeded', shouldRetry: false },
  )
}

/**
 * The key of the input. Throws unless the file was uploaded with the purpose `batch`, and its lines
 * fit into the storage of the organization.
 */
async function inputOf(
  { batches, files }: BatchServices,
  organizationId: string,
  id: string,
): Promise<string> {
  const param = 'input_file_id'
  const file = await files.find(organizationId, id)
  if (file === undefined) {
    throw failure.notFound(`No such File object: ${id.slice(0, 100)}`, { param })
  }
  if (file.purpose !== 'batch') {
    throw failure.invalidRequest(
      `Invalid 'input_file_id': expected a file with the purpose 'batch', but it was uploaded for '${file.purpose}'.`,
      { param, code: 'invalid_value' },
    )
  }
  if (file.bytes > INPUT_BYTES_MAX) {
    throw failure.invalidRequest(
      `Invalid 'input_file_id': the file has ${file.bytes} bytes, but a batch may have at most ${INPUT_BYTES_MAX}.`,
      { param, code: 'file_too_large' },
    )
  }
  const hasRoom = await batches.hasRoom(organizationId, ROW_BYTES + file.bytes)
  if (!hasRoom) throw storageLimitExceeded()
  return file.objectKey
}

function noSuchBatch(id: string, param = 'batch_id'): ServiceError {
  return failure.notFound(`No batch found with id '${id.slice(0, 100)}'.`, { param })
}

function tooManyBatches(): ServiceError {
  return failure.rateLimited(
    `Your organization has ${OPEN_BATCHES_MAX} unfinished batches, the most that are allowed. Wait for one to end, or cancel one.`,
    { code: 'batch_limit_exceeded', retryAfterSeconds: 60, shouldRetry: false },
  )
}
