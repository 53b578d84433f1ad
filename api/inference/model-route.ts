import { createHash } from 'node:crypto'

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import type { Http } from '#api/jobs/run-inference.ts'
import type { ErrorAnswer } from '#api/v1/error-dialect.ts'
import { type Caller, mayUseModel, noSuchModel } from '#api/v1/request-context.ts'
import type { Scope } from '#api/v1/scopes.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import { JOB_ERRORS } from './response-schemas.ts'
import type { InferenceServices } from './services.ts'

/** An endpoint whose body names the model. */
interface ModelRoute {
  readonly path: `/${string}`
  readonly scope: Scope
  /** The name of its answer in the API description: `ChatCompletion`. */
  readonly noun: string
  readonly summary: string
  readonly tag: string
  readonly isDeprecated?: boolean
  readonly body: object
  /** The body of the older path, where `model` is optional. */
  readonly engineBody: object
  readonly answer: object
  /** Bounds the counts of a body before the validator reads all of it. Throws refusals. */
  precheck?(body: unknown): void
  presentError?(error: ServiceError): ErrorAnswer
  handle(http: Http): Promise<unknown>
}

/**
 * Serves an endpoint at its path and at the older path under `/engines/{id}`, which names the
 * model.
 */
export function registerModelRoute(app: FastifyInstance, route: ModelRoute): void {
  const { path, scope, noun, summary, isDeprecated = false, presentError } = route
  const config = { scope, ...(presentError !== undefined && { presentError }) }
  const handler = (request: FastifyRequest, reply: FastifyReply): Promise<unknown> =>
    route.handle({ request, reply })
  const preValidation = async ({ body }: FastifyRequest): Promise<void> => route.precheck?.(body)
  const common = {
    security: [{ apiKey: [] }],
    response: { 200: route.answer, ...JOB_ERRORS },
  }
  app.post(path, {
    config,
    preValidation,
    schema: {
      operationId: `create${noun}`,
      summary,
      tags: [route.tag],
      ...(isDeprecated && { deprecated: true }),
      ...common,
      body: route.body,
    },
    handler,
  })
  app.post(`/engines/:engine_id${path}`, {
    config,
    preValidation,
    schema: {
      operationId: `createEngine${noun}`,
      summary: `${summary} with the model of the path`,
      tags: ['Engines'],
      deprecated: true,
      ...common,
      params: ENGINE_PARAMS,
      body: route.engineBody,
    },
    handler,
  })
}

/** The path parameter of the older paths. */
export const ENGINE_PARAMS = {
  type: 'object',
  required: ['engine_id'],
  properties: {
    engine_id: { type: 'string', description: 'The id of a model, percent-encoded.' },
  },
}

/** The model that a request names: in its path, else in its body. */
export function modelNameOf(request: FastifyRequest): string {
  const { engine_id: engineId } = request.params as { engine_id?: string }
  return engineId ?? (request.body as { model: string }).model
}

/** The sources in which models are looked up. */
export type ModelDirectory = Pick<InferenceServices, 'catalogue' | 'tunedModels'>

/**
 * The model with an id or alias, including those that the caller's organization made. Throws
 * `model_not_found` if there is none or the caller may not use it.
 */
export async function getModel(
  { catalogue, tunedModels }: ModelDirectory,
  caller: Caller,
  name: string,
  param: string | undefined = undefined,
): Promise<CatalogueModel> {
  const model = catalogue.find(name) ?? (await tunedModels?.find(caller.organizationId, name))
  if (model !== undefined && mayUseModel(caller, model)) return model
  throw noSuchModel(name, param)
}

/** The models that a caller may use: those of the installation, then those of the organization. */
export async function visibleModels(
  { catalogue, tunedModels }: ModelDirectory,
  caller: Caller,
): Promise<CatalogueModel[]> {
  const own = (await tunedModels?.list(caller.organizationId)) ?? []
  return [...catalogue.models, ...own].filter((model) => mayUseModel(caller, model))
}

/** Like `getModel`, for a text model that can complete a prompt. */
export async function getCompletionModel(
  models: ModelDirectory,
  caller: Caller,
  name: string,
): Promise<CatalogueModel> {
  const model = await getModel(models, caller, name)
  if (model.kind !== 'completion') throw unsuitable(model, 'v1/completions')
  if (model.capabilities.includes('completion')) return model
  if (model.capabilities.includes('chat')) {
    throw failure.notFound(
      'This is a chat model and not supported in the v1/completions endpoint. Did you mean to use v1/chat/completions?',
      { param: 'model' },
    )
  }
  throw unsuitable(model, 'v1/completions')
}

/** Like `getModel`, for a text model that can answer a chat. */
export async function getChatModel(
  models: ModelDirectory,
  caller: Caller,
  name: string,
): Promise<CatalogueModel> {
  const model = await getModel(models, caller, name)
  if (model.kind === 'completion' && model.capabilities.includes('chat')) return model
  if (model.kind === 'completion' && model.capabilities.includes('completion')) {
    throw failure.notFound(
      'This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use v1/completions?',
      { param: 'model' },
    )
  }
  throw unsuitable(model, 'v1/chat/completions')
}

/** The requirements of an endpoint on its model. */
interface ModelNeed {
  readonly name: string
  readonly kind: QueueKind
  /** The capability that the catalogue must list, or one of several; any when absent. */
  readonly capability?: string | readonly string[]
  /** Capabilities that exclude the model. */
  readonly without?: readonly string[]
  /** As the client knows it, such as `v1/edits`. */
  readonly endpoint: string
}

/**
 * The capability that an endpoint requires of models that list capabilities. A model without a list
 * supports everything of its kind.
 */
const LISTED_FOR: Readonly<Record<string, string>> = {
  'v1/audio/transcriptions': 'transcribe',
  'v1/audio/translations': 'translate',
  'v1/images/generations': 'generate',
  'v1/images/edits': 'edit',
  'v1/images/variations': 'variation',
}

/** Like `getModel`, for a model of one kind that supports the endpoint. */
export async function getCapableModel(
  models: ModelDirectory,
  caller: Caller,
  need: ModelNeed,
): Promise<CatalogueModel> {
  const model = await getModel(models, caller, need.name)
  const { kind, capability, without = [], endpoint } = need
  if (model.kind !== kind) throw unsuitable(model, endpoint)
  const can = (name: string): boolean => model.capabilities.includes(name)
  const listed = LISTED_FOR[endpoint]
  const isListed = listed === undefined || model.capabilities.length === 0 || can(listed)
  const isAble = isListed && (capability === undefined || [capability].flat().some(can))
  if (isAble && !without.some(can)) return model
  throw failure.notFound(
    `The model \`${model.id}\` is not supported in the ${endpoint} endpoint.${hintOf(model)}`,
    { param: 'model' },
  )
}

const VECTOR_ENDPOINTS: Readonly<Record<string, string>> = {
  rerank: 'v1/rerank',
  classify: 'v1/classify',
  sparse: 'v1/embed_sparse',
  'multi-vector': 'v1/multi-vector',
}

/** Embedding models have several endpoints, so the hint depends on the capabilities. */
function hintOf({ kind, capabilities }: CatalogueModel): string {
  if (kind !== 'embedding') return ''
  const [own] = capabilities.flatMap((name) => VECTOR_ENDPOINTS[name] ?? [])
  return ` Did you mean to use ${own ?? 'v1/embeddings'}?`
}

/**
 * Like `getCapableModel`, for models with one task. Without a name, the first one that reads texts
 * (or images).
 */
export function getTaskModel(
  models: ModelDirectory,
  caller: Caller,
  {
    name,
    task,
    reads = 'texts',
    endpoint,
  }: {
    readonly name: string | null | undefined
    readonly task: keyof typeof CAPABILITIES_OF_TASKS
    readonly reads?: 'texts' | 'images'
    readonly endpoint: string
  },
): Promise<CatalogueModel> {
  const { [task]: capability } = CAPABILITIES_OF_TASKS
  const first = models.catalogue.models.find(
    (model) =>
      capability.some((each) => model.capabilities.includes(each)) && readsOf(model) === reads,
  )
  const need = { name: name ?? first?.id ?? task, kind: 'embedding', capability } as const
  return getCapableModel(models, caller, { ...need, endpoint })
}

/** The capability of each task; models with it have only that task. */
const CAPABILITIES_OF_TASKS = {
  rerank: ['rerank', 'multi-vector'],
  classify: ['classify'],
  sparse: ['sparse'],
  'multi-vector': ['multi-vector'],
} as const satisfies Readonly<Record<string, readonly string[]>>

/** The kinds of inputs of a model with one task. */
export function readsOf({ capabilities }: CatalogueModel): 'texts' | 'images' {
  return capabilities.includes('vision') ? 'images' : 'texts'
}

function unsuitable(model: CatalogueModel, endpoint: string): ServiceError {
  return failure.notFound(
    `The model \`${model.id}\` is made for ${model.kind} requests and not supported in the ${endpoint} endpoint.`,
    { param: 'model' },
  )
}

/** Identifies the model and its settings: the same settings always have the same fingerprint. */
export function systemFingerprint(model: CatalogueModel): string {
  const known = FINGERPRINTS.get(model)
  if (known !== undefined) return known
  const identity = JSON.stringify([model.id, model.source, model.options, model.adapter?.source])
  const fingerprint = `fp_${createHash('sha256').update(identity).digest('hex').slice(0, 10)}`
  FINGERPRINTS.set(model, fingerprint)
  return fingerprint
}

// Hashing once per model instead of once per request.
const FINGERPRINTS = new WeakMap<CatalogueModel, string>()
