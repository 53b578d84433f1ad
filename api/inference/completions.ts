import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { callerOf, type Caller } from '#api/v1/caller.ts'
import { answerHeadOf, freshHead, type AnswerHead } from '#api/v1/durable.ts'
import { presentCompletion, type CompletionAnswer } from './completion-answer.ts'
import {
  COMPLETION_BODY,
  completionInput,
  ENGINE_COMPLETION_BODY,
  type CompletionBody,
} from './completion-request.ts'
import { completionPresenter } from './completion-stream.ts'
import { generate, type Generation } from './generate.ts'
import { getCompletionModel, systemFingerprint } from './model-lookup.ts'
import { answerOrStream, COMPLETION_RESPONSE, JOB_ERRORS } from './response-schemas.ts'
import { ENGINE_PARAMS, modelNameOf } from './route-params.ts'
import { streamChoice } from './sampling-fields.ts'
import type { InferenceServices } from './services.ts'

/** `POST /completions` and its older path, which names the model. */
export function registerCompletions(app: FastifyInstance, services: InferenceServices): void {
  const handler = (request: FastifyRequest, reply: FastifyReply): Promise<unknown> =>
    complete({ request, reply }, services)
  const response = {
    200: answerOrStream('The completions.', COMPLETION_RESPONSE),
    ...JOB_ERRORS,
  }
  app.post('/completions', {
    config: { scope: 'completions' },
    schema: {
      operationId: 'createCompletion',
      summary: 'Complete a text',
      tags: ['Completions'],
      security: [{ apiKey: [] }],
      body: COMPLETION_BODY,
      response,
    },
    handler,
  })
  app.post('/engines/:engine_id/completions', {
    config: { scope: 'completions' },
    schema: {
      operationId: 'createEngineCompletion',
      summary: 'Complete a text with the model of the path',
      tags: ['Engines'],
      deprecated: true,
      security: [{ apiKey: [] }],
      params: ENGINE_PARAMS,
      body: ENGINE_COMPLETION_BODY,
      response,
    },
    handler,
  })
}

function complete(
  http: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  services: InferenceServices,
): Promise<unknown> {
  const body = http.request.body as CompletionBody
  const asked = {
    caller: callerOf(http.request),
    modelName: modelNameOf(http.request),
    body,
    head: answerHeadOf(http.request, services.clock),
  }
  return generate(http, services, completionGeneration(services, asked))
}

/** What a completion request asks of the workers, and how to present what comes of it. */
export function completionGeneration(
  { catalogue, clock }: Pick<InferenceServices, 'catalogue' | 'clock'>,
  asked: {
    readonly caller: Caller
    readonly modelName: string
    readonly body: CompletionBody
    readonly head?: AnswerHead
  },
): Generation<CompletionAnswer> {
  const model = getCompletionModel(catalogue, asked.caller, asked.modelName)
  const input = completionInput(asked.body)
  const { newId, created } = asked.head ?? freshHead(clock)
  const head = {
    id: newId('cmpl-'),
    created,
    model: model.id,
    systemFingerprint: systemFingerprint(model),
  }
  return {
    model,
    input,
    present: (outcome) => presentCompletion(head, input, outcome),
    presenter: () => completionPresenter(head, input, streamChoice(asked.body)),
  }
}
