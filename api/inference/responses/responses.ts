import type { FastifyInstance } from 'fastify'

import { serviceTierOf } from '#api/inference/chat/chat-request.ts'
import { type Generation, generate, type Validated, validatedOf } from '#api/inference/generate.ts'
import type { Http } from '#api/inference/jobs/run-job.ts'
import { getCapableModel } from '#api/inference/model-lookup.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { freshHead } from '#api/v1/durable.ts'
import { unixSeconds } from '#shared/clock.ts'
import { failure, ServiceError } from '#shared/errors.ts'

import { endStatus, presentResponse } from './responses-answer.ts'
import { RESPONSES_BODY, type ResponsesBody } from './responses-body.ts'
import { hexId, ResponseOutput } from './responses-output.ts'
import { responsesRequest } from './responses-request.ts'
import { RESPONSES_ANSWER } from './responses-schemas.ts'
import { responsePresenter } from './responses-stream.ts'

/** `POST /responses`: a chat in the newest dialect, whose conversation stays with the client. */
export function registerResponses(app: FastifyInstance, services: InferenceServices): void {
  app.post('/responses', {
    config: { scope: 'responses' },
    schema: {
      operationId: 'createResponse',
      summary: 'Answer a conversation as a response',
      tags: ['Responses'],
      security: [{ apiKey: [] }],
      body: RESPONSES_BODY,
      response: { 200: RESPONSES_ANSWER, ...JOB_ERRORS },
    },
    handler: (request, reply) => respond({ request, reply }, services),
  })
}

async function respond(http: Http, services: InferenceServices): Promise<unknown> {
  const validated = validatedOf<ResponsesBody>(http, services.clock)
  try {
    return await generate(http, services, responseGeneration(services, validated))
  } catch (error) {
    throw renamed(error)
  }
}

/** Workers report `messages`; this dialect calls that field `input`. */
function renamed(error: unknown): unknown {
  if (!(error instanceof ServiceError) || error.param !== 'messages') return error
  const { code, message } = error
  return failure[error.kind](message, {
    ...{ param: 'input', cause: error },
    ...(code !== undefined && { code }),
  })
}

/** The job of a response request, and the presentation of its result. */
export function responseGeneration(
  { catalogue, clock }: Pick<InferenceServices, 'catalogue' | 'clock'>,
  validated: Validated<ResponsesBody>,
): Generation<object> {
  const { body } = validated
  const model = getCapableModel(catalogue, validated.caller, {
    ...{
      name: validated.modelName,
      kind: 'completion',
      capability: 'chat',
      endpoint: 'v1/responses',
    },
  })
  const { input, tools } = responsesRequest(body)
  const { newId, created } = validated.head ?? freshHead(clock)
  const id = hexId('resp_', newId('resp_'))
  const head = {
    ...{ id, createdAt: created, model: model.id, body },
    serviceTier: serviceTierOf(body),
  }
  const now = (): number => unixSeconds(clock.now())
  return {
    model,
    input,
    priorityClass: head.serviceTier,
    present({ candidates, usage, dialect }) {
      const output = new ResponseOutput(id, tools)
      output.reads(dialect)
      for (const candidate of candidates) output.push(candidate)
      const { items } = output
      const state = { status: endStatus(items), completedAt: now(), output: items, usage }
      return presentResponse(head, state)
    },
    presenter: () => responsePresenter(head, new ResponseOutput(id, tools), now),
  }
}
