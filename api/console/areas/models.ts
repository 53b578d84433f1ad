import type { Redis } from 'ioredis'

import { bodyOf, type ConsoleArea, type ConsoleCall, SHORT_TEXT } from '#api/console/api.ts'
import { wholeList } from '#api/console/lists.ts'
import { type CatalogueModel, parseCatalogue } from '#shared/catalogue.ts'
import { MODEL_KINDS } from '#shared/contracts/job.ts'
import { failure } from '#shared/errors.ts'
import type { AddedModel, LiveCatalogue } from '#shared/live-catalogue.ts'
import type { QueueKeys } from '#shared/queue/keys.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'

interface ModelServices {
  readonly catalogue: LiveCatalogue
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

/** The fields of a new model; all others are for `models.json`. */
interface NewModel {
  readonly id: string
  readonly kind: string
  readonly source: string
  readonly capabilities?: readonly string[]
  readonly onnxFile?: string
}

const ADDED_MODELS_MAX = 100
const NEW_MODEL = bodyOf(
  {
    id: SHORT_TEXT,
    kind: { type: 'string', enum: MODEL_KINDS },
    source: SHORT_TEXT,
    capabilities: { type: 'array', maxItems: 10, items: SHORT_TEXT },
    onnxFile: SHORT_TEXT,
  },
  ['id', 'kind', 'source'],
)

/**
 * The models of the catalogue: which workers have loaded them, failures, and whether they accept
 * requests.
 */
export function modelArea(services: ModelServices): ConsoleArea {
  const { redis, keys } = services
  return {
    reads: [{ path: '/models', handle: () => listModels(services) }],
    actions: [
      {
        method: 'POST',
        path: '/models/:model/disable',
        role: 'operator',
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
        method: 'POST',
        path: '/models/:model/enable',
        role: 'operator',
        operation: 'model.enable',
        async handle({ params }: ConsoleCall<OneModel>) {
          await redis.hdel(keys.disabledModels, getModel(services, params).id)
        },
      },
      {
        method: 'POST',
        path: '/models',
        role: 'administrator',
        operation: 'model.add',
        body: NEW_MODEL,
        detail: (body: NewModel) => body,
        handle: ({ body, administrator }: ConsoleCall<object, NewModel>) =>
          addModel(services, body, administrator.name),
      },
      {
        method: 'DELETE',
        path: '/models/:model',
        role: 'administrator',
        operation: 'model.remove',
        handle: ({ params }: ConsoleCall<OneModel>) => removeModel(services, params),
      },
    ],
  }
}

async function addModel(
  { catalogue, redis, keys }: ModelServices,
  { onnxFile, ...body }: NewModel,
  by: string,
): Promise<void> {
  if (!/^(hub|s3):/.test(body.source)) {
    throw failure.invalidRequest(
      'source must be hub:owner/name@revision or s3:prefix: a folder belongs into models.json.',
      { param: 'source' },
    )
  }
  const isOnnxNamed = onnxFile !== undefined && onnxFile !== ''
  const entry = {
    ...body,
    created: Math.floor(Date.now() / 1000),
    ...(isOnnxNamed && { options: { onnxFile } }),
  }
  requireValid(entry)
  if (catalogue.find(entry.id) !== undefined) {
    throw failure.conflict(`There is a model of this name: ${entry.id}`, {
      param: 'id',
      code: 'model_exists',
    })
  }
  if ((await redis.hlen(keys.addedModels)) >= ADDED_MODELS_MAX) {
    throw failure.conflict(`There are ${ADDED_MODELS_MAX} added models: remove one.`)
  }
  const added: AddedModel = { entry, by, at: new Date().toISOString() }
  await redis.hset(keys.addedModels, entry.id, JSON.stringify(added))
  await catalogue.read()
}

function requireValid(entry: object): void {
  try {
    parseCatalogue({ models: [entry] })
  } catch (cause) {
    // "models.json: models[0].capabilities: …"
    const message = (cause as Error).message.replace(/^models\.json: models\[0\]\.?/, '')
    const param = /^\w+/.exec(message)?.[0]
    throw failure.invalidRequest(message, { ...(param !== undefined && { param }), cause })
  }
}

async function removeModel(
  { catalogue, redis, keys }: ModelServices,
  params: OneModel,
): Promise<void> {
  const id = params.model
  if (catalogue.isListed(id)) {
    throw failure.conflict('models.json lists this model: remove it there, or disable it here.', {
      param: 'model',
      code: 'model_listed',
    })
  }
  if ((await redis.hdel(keys.addedModels, id)) === 0) throw noSuchModel(id)
  await redis.hdel(keys.disabledModels, id)
  await catalogue.read()
}

async function listModels({ catalogue, redis, keys, workers }: ModelServices) {
  // Records by the id of a model, which may be that of a property of every object.
  const recordsOf = async (key: string): Promise<ReadonlyMap<string, string>> =>
    new Map(Object.entries(await redis.hgetall(key)))
  const [heartbeats, disabled, added] = await Promise.all([
    workers(),
    recordsOf(keys.disabledModels),
    recordsOf(keys.addedModels),
  ])
  const bases = catalogue.models.filter(({ adapter }) => adapter === undefined)
  const rows = bases.map((model) => {
    const places = heartbeats.flatMap(({ queues, hostname, pid }) =>
      queues
        .filter(({ kind, modelId }) => kind === model.kind && modelId === model.id)
        .map(({ isReady, slots, bytes, loadError, contextLength, pull }) => ({
          host: hostname,
          pid,
          is_ready: isReady,
          slots,
          bytes: bytes ?? null,
          load_error: loadError ?? null,
          context_length: contextLength ?? null,
          pull: pull === undefined ? null : presentPull(pull),
        })),
    )
    const disabling = disabled.get(model.id)
    return {
      id: model.id,
      kind: model.kind,
      source: model.source,
      aliases: model.aliases,
      capabilities: model.capabilities,
      price: model.price ?? null,
      places,
      disabled: disabling === undefined ? null : (JSON.parse(disabling) as Disabling),
      added: presentAdding(catalogue.isListed(model.id) ? undefined : added.get(model.id)),
    }
  })
  return wholeList(rows)
}

function presentAdding(record: string | undefined): Pick<AddedModel, 'by' | 'at'> | null {
  if (record === undefined) return null
  const { by, at } = JSON.parse(record) as AddedModel
  return { by, at }
}

function presentPull({ file, doneBytes, totalBytes }: NonNullable<ServedQueue['pull']>) {
  return { file, done_bytes: doneBytes, total_bytes: totalBytes }
}

function getModel({ catalogue }: ModelServices, { model }: OneModel): CatalogueModel {
  const found = catalogue.models.find(({ id, adapter }) => id === model && !adapter)
  if (found !== undefined) return found
  throw noSuchModel(model)
}

function noSuchModel(id: string): Error {
  return failure.notFound(`No such model: ${id.slice(0, 64)}`, { param: 'model' })
}
