import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { unixSeconds } from '#shared/clock.ts'
import { randomId } from '#shared/ids.ts'

import { callerOf } from '#api/v1/caller.ts'
import { presentCompletion } from './completion-answer.ts'
import {
  COMPLETION_BODY,
  completionInput,
  ENGINE_COMPLETION_BODY,
  type CompletionBody,
} from './completion-request.ts'
import { completionPresenter } from './completion-stream.ts'
import { generate } from './generate.ts'
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
  const model = getCompletionModel(
    services.catalogue,
    callerOf(http.request),
    modelNameOf(http.request),
  )
  const input = completionInput(body)
  const head = {
    id: randomId('cmpl-'),
    created: unixSeconds(services.clock.now()),
    model: model.id,
    systemFingerprint: systemFingerprint(model),
  }
  return generate(http, services, {
    model,
    input,
    present: (outcome) => presentCompletion(head, input, outcome),
    presenter: () => completionPresenter(head, input, streamChoice(body)),
  })
}
