import type { FastifyInstance, FastifyReply } from 'fastify'

import { pathOf } from '#api/http/request.ts'
import { serviceTierOf } from '#api/inference/chat/chat-request.ts'
import { RESPONSE_FIELDS, withFieldNames } from '#api/inference/field-names.ts'
import { type Generation, generate, type Validated, validatedOf } from '#api/inference/generate.ts'
import { getCapableModel, type ModelDirectory } from '#api/inference/model-route.ts'
import { requireVision } from '#api/inference/request-images.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { jobHead } from '#api/jobs/background-jobs.ts'
import { streamEvents } from '#api/jobs/routes.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { callerOf, durableHead, freshHead } from '#api/v1/request-context.ts'
import { unixSeconds } from '#shared/clock.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import { noThread, type ResponseThread, readsThread, threadOf, withIds } from './response-thread.ts'
import { endStatus, presentResponse, type ResponseHead } from './responses-answer.ts'
import { RESPONSES_BODY, type ResponsesBody } from './responses-body.ts'
import { hexId, ResponseOutput } from './responses-output.ts'
import { checkUnstored, responsesRequest } from './responses-request.ts'
import { RESPONSES_ANSWER } from './responses-schemas.ts'
import { responsePresenter } from './responses-stream.ts'
import { summaryOpener } from './summaries.ts'

/** `POST /responses`: a chat in the newest dialect, stored for later requests if requested. */
export function registerResponses(app: FastifyInstance, services: InferenceServices): void {
  app.post('/responses', {
    config: { scope: 'responses', readsContents: readsWith },
    schema: {
      operationId: 'createResponse',
      summary: 'Answer a conversation as a response',
      tags: ['Responses'],
      security: [{ apiKey: [] }],
      body: RESPONSES_BODY,
      response: { 200: RESPONSES_ANSWER, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(RESPONSE_FIELDS, () => respond({ request, reply }, services)),
  })
}

/** The stream of a response in the background ends with its stored events. */
function readsWith(body: unknown): boolean | 'later' {
  const { background, stream } = body as ResponsesBody
  if (readsThread(body)) return true
  return background === true && stream === true ? 'later' : false
}

async function respond(http: Http, services: InferenceServices): Promise<unknown> {
  const validated = validatedOf<ResponsesBody>(http, services.clock)
  const { body } = validated
  const thread = await threadOf(http, services, body)
  const isStoredRequest = http.request.context.stored !== undefined
  if (body.background === true && !isStoredRequest) {
    return runInBackground(http, services, { validated, thread })
  }
  const head = await responseHead(services, validated, thread)
  const answer = await generate(http, services, responseGeneration(services, head, thread))
  return http.reply.sent ? answer : thread.save(head, answer)
}

/** Stores the request as a background job, and answers with the queued response. */
async function runInBackground(
  http: Http,
  services: InferenceServices,
  what: { readonly validated: Validated<ResponsesBody>; readonly thread: ResponseThread },
): Promise<object | FastifyReply> {
  const { stored, clock } = services
  const { validated, thread } = what
  const { body } = validated
  if (stored === undefined || !thread.isStored) throw backgroundNeedsStore()
  const { answers, background } = stored
  const made = jobHead(http.request, clock)
  const { id, createdAtMs } = made
  const head = await responseHead(
    services,
    { ...validated, head: durableHead({ id, startedAtMs: createdAtMs }) },
    thread,
  )
  // Faults of the request are reported at once.
  const { earlier, asked } = thread
  const openSummary = summaryOpener(services.cipher, head.organizationId)
  requireVision(head.catalogueModel, responsesRequest(body, { earlier, asked, openSummary }).images)
  const caller = callerOf(http.request)
  const { organizationId, userId = null } = caller
  const queued = presentResponse(head, { status: 'queued' })
  const isStored = await answers.add({
    id: head.id,
    object: 'response',
    model: head.model,
    organizationId,
    userId,
    previousId: body.previous_response_id ?? null,
    conversationId: thread.conversationId,
    jobId: id,
    metadata: body.metadata ?? null,
    createdAtMs,
    input: withIds(head.id, asked),
    answer: queued as Readonly<Record<string, unknown>>,
  })
  if (!isStored) throw backgroundNeedsStore()
  const job = await background
    .create(caller, {
      ...made,
      endpoint: pathOf(http.request.url),
      contentType: 'application/json',
      model: head.model,
      // Its events are always recorded, for clients that return.
      body: Buffer.from(JSON.stringify({ ...body, stream: true })),
      responseId: head.id,
      metadata: body.metadata ?? null,
      priority: head.serviceTier,
    })
    .catch(async (error: unknown) => {
      await answers.remove(organizationId, 'response', head.id)
      throw error
    })
  if (body.stream !== true) return queued
  return streamEvents(http.reply, { background, job, from: 0 })
}

function backgroundNeedsStore(): ServiceError {
  return failure.invalidRequest(
    "A response in the background must be stored: 'background' needs 'store', and an organization that stores responses.",
    { param: 'background', code: 'invalid_value' },
  )
}

/** The constant fields of the response to a request. */
async function responseHead(
  services: ModelDirectory & Pick<InferenceServices, 'clock'>,
  { body, caller, modelName, head }: Validated<ResponsesBody>,
  { isStored, conversationId }: ResponseThread,
): Promise<ResponseHead> {
  const model = await getCapableModel(services, caller, {
    name: modelName,
    kind: 'completion',
    capability: 'chat',
    endpoint: 'v1/responses',
  })
  const { newId, created } = head ?? freshHead(services.clock)
  return {
    id: hexId('resp_', newId('resp_')),
    createdAt: created,
    model: model.id,
    body,
    serviceTier: serviceTierOf(body),
    isStored,
    conversationId,
    catalogueModel: model,
    organizationId: caller.organizationId,
  }
}

/** The job of a line of a batch, and the presentation of its result. */
export async function batchedResponse(
  services: ModelDirectory & Pick<InferenceServices, 'clock' | 'cipher'>,
  validated: Validated<ResponsesBody>,
): Promise<Generation<object>> {
  checkUnstored(validated.body)
  const thread = noThread(validated.body)
  return responseGeneration(services, await responseHead(services, validated, thread), thread)
}

/** The job of a response request, and the presentation of its result. */
function responseGeneration(
  { clock, cipher }: Pick<InferenceServices, 'clock' | 'cipher'>,
  head: ResponseHead,
  thread: ResponseThread,
): Generation<object> {
  const { id } = head
  const { input, tools, images } = responsesRequest(head.body, {
    ...thread,
    openSummary: summaryOpener(cipher, head.organizationId),
  })
  requireVision(head.catalogueModel, images)
  const now = (): number => unixSeconds(clock.now())
  return {
    model: head.catalogueModel,
    input,
    images,
    priorityClass: head.serviceTier,
    present({ candidates, usage, dialect }) {
      const output = new ResponseOutput(id, tools)
      output.reads(dialect)
      for (const candidate of candidates) output.push(candidate)
      const { items } = output
      const state = { status: endStatus(items), completedAt: now(), output: items, usage }
      return presentResponse(head, state)
    },
    presenter: () =>
      responsePresenter(head, new ResponseOutput(id, tools), {
        now,
        save: (response) => thread.save(head, response),
      }),
  }
}
