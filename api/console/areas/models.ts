import type { Redis } from 'ioredis'

import { bodyOf, type ConsoleArea, type ConsoleCall } from '#api/console/api.ts'
import { wholeList } from '#api/console/lists.ts'
import type { Catalogue, CatalogueModel } from '#shared/catalogue.ts'
import { failure } from '#shared/errors.ts'
import type { QueueKeys } from '#shared/queue/keys.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'

interface ModelServices {
  readonly catalogue: Catalogue
  readonly redis: Redis
  readonly keys: QueueKeys
  workers(): Promise<readonly WorkerHeartbeat[]>
}

/** The record of a disabled model: its operator, time and reason. */
interface Disabling {
  readonly by: string
  readonly at: string
  readonly reason: string
}

interface OneModel {
  readonly model: string
}

/** The models of the catalogue: where they are loaded, why not, and whether they take requests. */
export function modelArea(services: ModelServices): ConsoleArea {
  const { redis, keys } = services
  return {
    reads: [{ path: '/models', handle: () => listModels(services) }],
    actions: [
      {
        ...{ method: 'POST', path: '/models/:model/disable', role: 'operator' },
        operation: 'model.disable',
        body: bodyOf({ reason: { type: 'string', maxLength: 200 } }, ['reason']),
        detail: (body: { readonly reason: string }) => body,
        async handle({ params, body, administrator }: ConsoleCall<OneModel, { reason: string }>) {
          const { id } = getModel(services, params)
          const at = new Date().toISOString()
          const disabling: Disabling = { by: administrator.name, at, reason: body.reason }
          await redis.hset(keys.disabledModels, id, JSON.stringify(disabling))
        },
      },
      {
        ...{ method: 'POST', path: '/models/:model/enable', role: 'operator' },
        operation: 'model.enable',
        async handle({ params }: ConsoleCall<OneModel>) {
          await redis.hdel(keys.disabledModels, getModel(services, params).id)
        },
      },
    ],
  }
}

async function listModels({ catalogue, redis, keys, workers }: ModelServices) {
  const [heartbeats, disabled] = await Promise.all([workers(), redis.hgetall(keys.disabledModels)])
  const bases = catalogue.models.filter(({ adapter }) => adapter === undefined)
  const rows = bases.map((model) => {
    const places = heartbeats.flatMap(({ queues, hostname, pid }) =>
      queues
        .filter(({ kind, modelId }) => kind === model.kind && modelId === model.id)
        .map(({ isReady, slots, bytes, loadError, contextLength, pull }) => ({
          ...{ host: hostname, pid, is_ready: isReady, slots, bytes: bytes ?? null },
          ...{ load_error: loadError ?? null, context_length: contextLength ?? null },
          pull: pull === undefined ? null : presentPull(pull),
        })),
    )
    const disabling = disabled[model.id]
    return {
      ...{ id: model.id, kind: model.kind, source: model.source, aliases: model.aliases },
      ...{ capabilities: model.capabilities, price: model.price ?? null, places },
      disabled: disabling === undefined ? null : (JSON.parse(disabling) as Disabling),
    }
  })
  return wholeList(rows)
}

function presentPull({ file, doneBytes, totalBytes }: NonNullable<ServedQueue['pull']>) {
  return { file, done_bytes: doneBytes, total_bytes: totalBytes }
}

function getModel({ catalogue }: ModelServices, { model }: OneModel): CatalogueModel {
  const found = catalogue.models.find(({ id, adapter }) => id === model && !adapter)
  if (found !== undefined) return found
  throw failure.notFound(`No such model: ${model.slice(0, 64)}`, { param: 'model' })
}
