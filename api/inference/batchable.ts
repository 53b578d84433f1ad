import { compileBodySchema, type UnknownFields } from '#api/http/validation.ts'
import { collectResult, type JobOutcome } from '#api/jobs/run-inference.ts'
import type { Caller } from '#api/v1/request-context.ts'
import { validationFailure } from '#api/v1/validation-message.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { QueueKind, QueueTable } from '#shared/contracts/job.ts'

import { chatGeneration } from './chat/chat-completions.ts'
import { CHAT_BODY, type ChatBody } from './chat/chat-request.ts'
import { COMPLETION_BODY, type CompletionBody } from './completions/completion-request.ts'
import { completionGeneration } from './completions/completions.ts'
import {
  checkInputCount,
  EMBEDDING_BODY,
  type EmbeddingBody,
  embedInput,
} from './embeddings/embedding-request.ts'
import { getEmbeddingModel, writeEmbeddings } from './embeddings/embeddings.ts'
import type { Generation, Validated } from './generate.ts'
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
  /** The same each time that a line is run, so that its use is charged once. */
  readonly requestId: string
  readonly apiKeyId: string | undefined
  readonly userId: string | undefined
  readonly signal: AbortSignal
}

/**
 * Answers a request as its endpoint does, with batch priority: an object, or its JSON text when
 * serializing it takes long. Throws failures.
 */
type ExecuteBatchable = (request: BatchableRequest) => Promise<object | string>

type Needs = Pick<InferenceServices, 'catalogue' | 'clock' | 'submitter' | 'config'> & {
  /** As the routes treat them. */
  readonly unknownFields?: UnknownFields
  /** Receives the tokens that the requests of an organization used. */
  readonly noteTokens?: (organizationId: string, tokens: number) => void
  /** Throws when an organization has nothing left of its month. */
  readonly checkQuota?: (organizationId: string) => Promise<void>
}

/** A job of any kind, and how to present what comes of it. */
interface Plan<K extends QueueKind = QueueKind> {
  readonly kind: K
  readonly model: CatalogueModel
  readonly input: QueueTable[K]['input']
  present(outcome: JobOutcome<K>): object | Promise<string>
}

interface Endpoint {
  readonly schema: object
  precheck?(body: unknown): void
  plan(services: Needs, asked: Validated<unknown>): Plan | Promise<Plan>
}

/** The endpoints whose requests can be batched, each one row. */
const ENDPOINTS: Readonly<Record<string, Endpoint>> = {
  '/v1/chat/completions': {
    schema: CHAT_BODY,
    plan: (services, { body, ...asked }) =>
      generationPlan(chatGeneration(services, { ...asked, body: body as ChatBody })),
  },
  '/v1/responses': {
    schema: RESPONSES_BODY,
    plan: (services, { body, ...asked }) =>
      generationPlan(batchedResponse(services, { ...asked, body: body as ResponsesBody })),
  },
  '/v1/completions': {
    schema: COMPLETION_BODY,
    plan: (services, { body, ...asked }) =>
      generationPlan(completionGeneration(services, { ...asked, body: body as CompletionBody })),
  },
  '/v1/embeddings': {
    schema: EMBEDDING_BODY,
    precheck: checkInputCount,
    plan: (services, asked) => embeddingPlan(services, asked),
  },
}

/** Opens the way for requests that come from a batch. */
export function createBatchExecutor(services: Needs): ExecuteBatchable {
  const { unknownFields } = services
  const validators = new Map(
    Object.entries(ENDPOINTS).map(([path, { schema }]) => [
      path,
      compileBodySchema(schema, unknownFields),
    ]),
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
    const modelName = (body as { readonly model: string }).model
    const plan = await row.plan(services, { caller, modelName, body })
    await services.checkQuota?.(organizationId)
    const events = services.submitter.submit({
      kind: plan.kind,
      model: plan.model,
      input: plan.input,
      organizationId,
      account: {
        ...account,
        usageId: account.requestId,
        noteTokens: (tokens) => services.noteTokens?.(organizationId, tokens),
      },
      deadlineAtMs: services.clock.now() + services.config.deadlineSeconds * 1000,
      priorityClass: 'batch',
      signal,
    })
    return plan.present(await collectResult(events))
  }
}

function generationPlan(generation: Generation<object>): Plan {
  const { model, input } = generation
  return {
    kind: 'completion',
    model,
    input: { ...input, stream: false },
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
  const model = getEmbeddingModel(services, caller, modelName)
  return {
    kind: 'embedding',
    model,
    input: await embedInput(body, { model, modelName }),
    present: ({ result, usage }) => {
      if (!('vectors' in result)) throw new Error('an embedding was answered with scores')
      return writeEmbeddings(model, body, { vectors: result.vectors, usage })
    },
  }
}
