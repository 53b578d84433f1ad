import type { FastifyInstance, FastifyRequest } from 'fastify'

import { callerOf, mayUseModel, noSuchModel } from '#api/v1/request-context.ts'
import type { Catalogue } from '#shared/catalogue.ts'
import { failure } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { objectsOf } from './run.ts'
import { DELETE_MODEL } from './schemas.ts'
import type { TunedModels } from './tuned-models.ts'
import type { TuningStore } from './tuning-store.ts'

interface DeletionServices {
  readonly catalogue: Catalogue
  readonly models: TunedModels
  readonly tuning: TuningStore
  readonly store: ObjectStore
}

const SCOPE = { scope: 'fine_tuning' } as const

/** `DELETE /models/{model}`; names may hold slashes. */
export function registerDeleteModel(app: FastifyInstance, services: DeletionServices): void {
  const remove = async (request: FastifyRequest, name: string): Promise<object> => {
    const caller = callerOf(request)
    const { catalogue, models } = services
    const model = catalogue.find(name)
    if (model !== undefined && mayUseModel(caller, model)) {
      throw failure.accessDenied(
        `The model \`${model.id}\` is part of this installation. Only tuned models can be deleted.`,
        { param: 'model', code: 'model_not_deletable' },
      )
    }
    const isAllowed = mayUseModel(caller, { id: name })
    const deleted = isAllowed ? await models.delete(caller.organizationId, name) : []
    if (deleted.length === 0) throw noSuchModel(name, 'model')
    for (const { prefix } of deleted) await deleteBelow(services.store, `${prefix}/`)
    return { id: name, object: 'model', deleted: true }
  }
  app.delete<{ Params: { model: string } }>(
    '/models/:model',
    { schema: DELETE_MODEL, config: SCOPE },
    (request) => remove(request, request.params.model),
  )
  app.delete<{ Params: { '*': string } }>(
    '/models/*',
    { schema: { hide: true }, config: SCOPE },
    (request) => remove(request, request.params['*']),
  )
}

async function deleteBelow(store: ObjectStore, prefix: string): Promise<void> {
  for await (const { key } of store.list(prefix)) await store.delete(key)
}

const ROOT = 'fine-tuning/'
const JOBS_AT_ONCE = 200

/** Deletes the objects of ended jobs, except those of their models. */
export async function sweepTuningObjects({
  store,
  tuning,
}: Pick<DeletionServices, 'store' | 'tuning'>): Promise<void> {
  let keys = new Map<string, string[]>()
  const settle = async (): Promise<void> => {
    const needed = await tuning.needed([...keys.keys()])
    for (const [jobId, own] of keys) {
      const need = needed.get(jobId)
      if (need === 'all') continue
      const { examplesKey, validationKey } = objectsOf(jobId)
      const isUnneeded = (key: string) =>
        need === undefined || key === examplesKey || key === validationKey
      for (const key of own.filter(isUnneeded)) await store.delete(key)
    }
    keys = new Map()
  }
  for await (const { key } of store.list(ROOT)) {
    const jobId = key.slice(ROOT.length).split('/')[0] ?? ''
    if (!keys.has(jobId) && keys.size === JOBS_AT_ONCE) await settle()
    const own = keys.get(jobId)
    if (own === undefined) keys.set(jobId, [key])
    else own.push(key)
  }
  await settle()
}
