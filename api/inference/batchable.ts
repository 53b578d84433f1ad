import { schemaCompiler, type UnknownFields } from '#api/http/validation.ts'
import { collectResult, type JobOutcome } from '#api/jobs/run-inference.ts'
import type { Caller, JobUse } from '#api/v1/request-context.ts'
import { freshHead } from '#api/v1/request-context.ts'
import { validationFailure } from '#api/v1/validation-message.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import { unixSeconds } from '#shared/clock.ts'
import type { QueueKind, QueueTable } from '#shared/contracts/job.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { chatGeneration } from './chat/chat-completions.ts'
import { CHAT_BODY, type ChatBody, refuseResponseBody } from './chat/chat-request.ts'
import { COMPLETION_BODY, type CompletionBody } from './completions/completion-request.ts'
import { completionGeneration } from './completions/completions.ts'
import {
  EMBED_SPARSE_BODY,
  type EmbedSparseBody,
  sparseJob,
  writeSparse,
} from './embeddings/embed-sparse.ts'
import {
  checkEmbeddingBody,
  checkInputCount,
  EMBEDDING_BODY,
  type EmbeddingBody,
  embedInput,
} from './embeddings/embedding-request.ts'
import { embeddingFields, getEmbeddingModel, writeEmbeddings } from './embeddings/embeddings.ts'
import {
  MULTI_VECTOR_BODY,
  type MultiVectorBody,
  multiVectorJob,
  writeMultiVector,
} from './embeddings/multi-vector.ts'
import { type FieldNames, INPUTS, RESPONSE_FIELDS, withFieldNames } from './field-names.ts'
import { invalidValue } from './field-schemas.ts'
import type { Generation, Validated } from './generate.ts'
import { aboutImages, getImageModel, inlineImages } from './images/image-answer.ts'
import { commonInput, GENERATION_BODY, type GenerationBody } from './images/image-request.ts'
import { messageGeneration } from './messages/messages.ts'
import { MESSAGES_BODY, type MessagesBody } from './messages/messages-body.ts'
import {
  CLASSIFY_BODY,
  type ClassifyBody,
  checkClassifyBody,
  classifyFields,
  labellingJob,
  presentLabels,
} from './moderations/classify.ts'
import { checkTextCount } from './moderations/classifying-job.ts'
import {
  MODERATION_BODY,
  type ModerationBody,
  moderatingJobs,
  presentModeration,
} from './moderations/moderations.ts'
import { type RequestImages, withImages } from './request-images.ts'
import { rankingJob } from './rerank/rank.ts'
import {
  presentRanking,
  RERANK_BODY,
  type RerankBody,
  rerankFields,
  rerankRanking,
} from './rerank/rerank.ts'
import { batchedResponse } from './responses/responses.ts'
import { RESPONSES_BODY, type ResponsesBody } from './responses/responses-body.ts'
import type { InferenceServices } from './services.ts'

/** One request of a batch. */
interface BatchableRequest {
  readonly endpoint: string
  readonly body: unknown
  readonly organizationId: string
  /** The models that it may use; null means all. */
  readonly modelIds: readonly string[] | null
  /** The same id for every run of a line, so that its use is charged once. */
  readonly requestId: string
  readonly apiKeyId: string | undefined
  readonly userId: string | undefined
  readonly signal: AbortSignal
}

/** The answer of a request, as JSON text when serializing it takes long. */
interface BatchableAnswer {
  readonly body: object | string
  readonly modelId: string
  readonly usage: TokenUsage
}

/** Answers a request like its endpoint, with batch priority. Throws failures. */
export type ExecuteBatchable = (request: BatchableRequest) => Promise<BatchableAnswer>

type Needs = Pick<
  InferenceServices,
  | 'catalogue'
  | 'tunedModels'
  | 'clock'
  | 'cipher'
  | 'workersSeen'
  | 'submitter'
  | 'config'
  | 'store'
  | 'files'
  | 'images'
  | 'temporaryBytes'
  | 'log'
> & {
  /** As in the routes. */
  readonly unknownFields?: UnknownFields
  /** Called with the usage of each batch line. */
  readonly noteUse?: (organizationId: string, use: JobUse) => void
  /** Throws when the organization has used up a quota. */
  readonly checkQuota?: (organizationId: string) => Promise<void>
}

/** A job of any kind, and the presentation of its result. */
interface Plan<K extends QueueKind = QueueKind> {
  readonly kind: K
  readonly model: CatalogueModel
  readonly input: QueueTable[K]['input']
  /** The images of its messages. */
  readonly images?: RequestImages
  present(outcome: JobOutcome<K>): object | Promise<object | string>
}

/** The validated body of a line. */
type Line = Validated<unknown> & { readonly requestId: string }

interface Endpoint {
  readonly schema: object
  precheck?(body: unknown): void
  /** The fields of a request whose names differ from those of the workers. */
  fields?(body: unknown): FieldNames
  plan(services: Needs, asked: Line): Plan | Promise<Plan>
}

/** The endpoints whose requests can be batched, each one row. */
const ENDPOINTS: Readonly<Record<string, Endpoint>> = {
  '/v1/chat/completions': {
    schema: CHAT_BODY,
    precheck: refuseResponseBody,
    plan: async (services, { body, ...asked }) =>
      generationPlan(await chatGeneration(services, { ...asked, body: body as ChatBody })),
  },
  '/v1/responses': {
    schema: RESPONSES_BODY,
    fields: () => RESPONSE_FIELDS,
    plan: async (services, { body, ...asked }) =>
      generationPlan(await batchedResponse(services, { ...asked, body: body as ResponsesBody })),
  },
  '/v1/completions': {
    schema: COMPLETION_BODY,
    plan: async (services, { body, ...asked }) =>
      generationPlan(
        await completionGeneration(services, { ...asked, body: body as CompletionBody }),
      ),
  },
  '/v1/embeddings': {
    schema: EMBEDDING_BODY,
    precheck: checkEmbeddingBody,
    fields: (body) => embeddingFields(body as EmbeddingBody),
    plan: (services, asked) => embeddingPlan(services, asked),
  },
  '/v1/embed_sparse': {
    schema: EMBED_SPARSE_BODY,
    precheck: (body) => checkInputCount(body, 'inputs'),
    fields: () => INPUTS,
    plan: sparsePlan,
  },
  '/v1/multi-vector': {
    schema: MULTI_VECTOR_BODY,
    precheck: checkInputCount,
    plan: multiVectorPlan,
  },
  '/v1/rerank': {
    schema: RERANK_BODY,
    fields: (body) => rerankFields(body as RerankBody),
    plan: rankingPlan,
  },
  '/v1/moderations': { schema: MODERATION_BODY, precheck: checkTextCount, plan: moderationPlan },
  '/v1/classify': {
    schema: CLASSIFY_BODY,
    precheck: checkClassifyBody,
    fields: (body) => classifyFields(body as ClassifyBody),
    plan: labellingPlan,
  },
  '/v1/images/generations': { schema: GENERATION_BODY, plan: imagePlan },
  '/v1/messages': {
    schema: MESSAGES_BODY,
    plan: async (services, { body, requestId, ...asked }) =>
      generationPlan(
        await messageGeneration(services, { ...asked, body: body as MessagesBody }, requestId),
      ),
  },
}

/** Creates the function that runs requests of batches. */
export function createBatchExecutor(services: Needs): ExecuteBatchable {
  const { unknownFields } = services
  const compile = schemaCompiler(unknownFields)
  const validators = new Map(
    Object.entries(ENDPOINTS).map(([path, { schema }]) => [path, compile(schema)]),
  )
  return async ({ endpoint, body, organizationId, modelIds, signal, ...account }) => {
    const row = ENDPOINTS[endpoint]
    const validate = validators.get(endpoint)
    if (row === undefined || validate === undefined) throw new Error(`no endpoint ${endpoint}`)
    row.precheck?.(body)
    if (!validate(body)) {
      throw validationFailure(validate.errors ?? [], { value: body, schema: row.schema })
    }
    const caller: Caller = { organizationId, modelIds, scopes: null, expiresAtMs: null }
    const { model } = body as { readonly model?: string | null }
    const { requestId } = account
    return withFieldNames(row.fields?.(body) ?? {}, async () => {
      const plan = await row.plan(services, { caller, modelName: model ?? '', body, requestId })
      await services.checkQuota?.(organizationId)
      const run = () => runPlan(services, plan, { organizationId, signal, ...account })
      const { images } = plan
      if (images === undefined) return run()
      return withImages(services, { images, organizationId }, run)
    })
  }
}

/** Runs a job with batch priority, and presents its result. */
async function runPlan(
  services: Needs,
  plan: Plan,
  { organizationId, signal, ...account }: Omit<BatchableRequest, 'endpoint' | 'body' | 'modelIds'>,
): Promise<BatchableAnswer> {
  const events = services.submitter.submit({
    kind: plan.kind,
    model: plan.model,
    input: plan.input,
    organizationId,
    account: {
      ...account,
      usageId: account.requestId,
      noteUse: (use) => services.noteUse?.(organizationId, use),
    },
    deadlineAtMs: services.clock.now() + services.config.deadlineSeconds * 1000,
    priorityClass: 'batch',
    signal,
  })
  const outcome = await collectResult(events)
  return { body: await plan.present(outcome), modelId: plan.model.id, usage: outcome.usage }
}

function generationPlan(generation: Generation<object>): Plan {
  const { model, input, images } = generation
  return {
    kind: 'completion',
    model,
    input: { ...input, stream: false },
    ...(images !== undefined && { images }),
    present: ({ result, usage }) => {
      if (!('candidates' in result)) throw new Error('a generation was answered with scores')
      return generation.present({ ...result, usage })
    },
  }
}

async function embeddingPlan(
  services: Needs,
  { caller, modelName, body: anyBody }: Validated<unknown>,
): Promise<Plan> {
  const body = anyBody as EmbeddingBody
  const model = await getEmbeddingModel(services, caller, modelName)
  const { input, images } = await embedInput(body, { model, modelName })
  return {
    ...({ kind: 'embedding', model, input, images } as const),
    present: ({ result, usage }) => {
      if (!('dimensions' in result)) throw new Error('an embedding was answered with scores')
      return writeEmbeddings(model, body, { vectors: result.vectors, usage })
    },
  }
}

async function sparsePlan(services: Needs, { caller, body }: Line): Promise<Plan> {
  const { model, input } = await sparseJob(services, caller, body as EmbedSparseBody)
  return {
    ...({ kind: 'embedding', model, input } as const),
    present({ result }) {
      if (!('vectors' in result) || 'dimensions' in result) {
        throw new Error('a sparse embedding was answered otherwise')
      }
      return writeSparse(result.vectors)
    },
  }
}

async function multiVectorPlan(services: Needs, { caller, body: anyBody }: Line): Promise<Plan> {
  const body = anyBody as MultiVectorBody
  const { model, input } = await multiVectorJob(services, caller, body)
  return {
    ...({ kind: 'embedding', model, input } as const),
    present({ result, usage }) {
      if (!('matrices' in result)) throw new Error('vectors of tokens were answered otherwise')
      return writeMultiVector(model, body, { result, usage })
    },
  }
}

async function moderationPlan(services: Needs, { caller, body }: Line): Promise<Plan> {
  const { jobs, images } = await moderatingJobs(services, caller, body as ModerationBody)
  const [job, another] = jobs
  if (job === undefined || another !== undefined) {
    throw invalidValue('input', 'a line of a batch has texts or images, not both.')
  }
  return {
    ...({ kind: 'embedding', ...job, images } as const),
    present({ result }) {
      if (!('labels' in result)) throw new Error('a moderation was answered otherwise')
      const id = freshHead(services.clock).newId('modr-')
      return presentModeration(id, [{ ...job, result }])
    },
  }
}

async function labellingPlan(services: Needs, { caller, body }: Line): Promise<Plan> {
  const { job, images } = await labellingJob(services, caller, body as ClassifyBody)
  return {
    ...({ kind: 'embedding', ...job, images } as const),
    present({ result, usage }) {
      if (!('labels' in result)) throw new Error('a classification was answered otherwise')
      return presentLabels({ head: freshHead(services.clock), model: job.model, result, usage })
    },
  }
}

async function rankingPlan(services: Needs, { caller, body: anyBody }: Line): Promise<Plan> {
  const body = anyBody as RerankBody
  const ranking = rerankRanking(body)
  const { model, input } = await rankingJob(services, caller, ranking)
  return {
    ...({ kind: 'embedding', model, input } as const),
    present({ result, usage }) {
      if (!('scores' in result)) throw new Error('a ranking was answered with something else')
      const { documents } = ranking
      const id = freshHead(services.clock).newId('rerank-')
      return presentRanking(body, { id, documents, model, scores: result.scores, usage })
    },
  }
}

/** Images of a batch are in its output file, because URLs are valid for an hour only. */
async function imagePlan(services: Needs, { caller, body: anyBody }: Line): Promise<Plan> {
  const body = anyBody as GenerationBody
  if (body.response_format === 'url') {
    throw invalidValue('response_format', 'images of a batch are answered as b64_json.')
  }
  return {
    kind: 'image',
    model: await getImageModel(services, caller, body, 'v1/images/generations'),
    input: { ...commonInput(body), task: 'generate', prompt: body.prompt },
    async present({ result }) {
      if (!('imageKeys' in result)) throw new Error('images were answered with something else')
      const created = unixSeconds(services.clock.now())
      const data = await inlineImages(services, result.imageKeys)
      return { created, data, ...aboutImages(body) }
    },
  }
}
