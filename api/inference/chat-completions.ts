import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { callerOf, type Caller } from '#api/v1/caller.ts'
import { answerHeadOf, freshHead, type AnswerHead } from '#api/v1/durable.ts'
import { presentChat } from './chat-answer.ts'
import {
  CHAT_BODY,
  chatRequest,
  ENGINE_CHAT_BODY,
  serviceTierOf,
  type ChatBody,
} from './chat-request.ts'
import { chatPresenter } from './chat-stream.ts'
import { generate, type Generation } from './generate.ts'
import { getChatModel, systemFingerprint } from './model-lookup.ts'
import { answerOrStream, CHAT_RESPONSE, JOB_ERRORS } from './response-schemas.ts'
import { ENGINE_PARAMS, modelNameOf } from './route-params.ts'
import { streamChoice } from './sampling-fields.ts'
import type { InferenceServices } from './services.ts'

const CHAT_ID_LENGTH = 29

/** `POST /chat/completions` and its older path, which names the model. */
export function registerChatCompletions(app: FastifyInstance, services: InferenceServices): void {
  const handler = (request: FastifyRequest, reply: FastifyReply): Promise<unknown> =>
    chat({ request, reply }, services)
  const response = {
    200: answerOrStream('The answers of the model.', CHAT_RESPONSE),
    ...JOB_ERRORS,
  }
  app.post('/chat/completions', {
    config: { scope: 'chat' },
    schema: {
      operationId: 'createChatCompletion',
      summary: 'Answer a chat',
      tags: ['Chat'],
      security: [{ apiKey: [] }],
      body: CHAT_BODY,
      response,
    },
    handler,
  })
  app.post('/engines/:engine_id/chat/completions', {
    config: { scope: 'chat' },
    schema: {
      operationId: 'createEngineChatCompletion',
      summary: 'Answer a chat with the model of the path',
      tags: ['Engines'],
      deprecated: true,
      security: [{ apiKey: [] }],
      params: ENGINE_PARAMS,
      body: ENGINE_CHAT_BODY,
      response,
    },
    handler,
  })
}

function chat(
  http: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  services: InferenceServices,
): Promise<unknown> {
  const body = http.request.body as ChatBody
  const asked = {
    caller: callerOf(http.request),
    modelName: modelNameOf(http.request),
    body,
    head: answerHeadOf(http.request, services.clock),
  }
  return generate(http, services, chatGeneration(services, asked))
}

/** What a chat request asks of the workers, and how to present what comes of it. */
export function chatGeneration(
  { catalogue, clock }: Pick<InferenceServices, 'catalogue' | 'clock'>,
  asked: {
    readonly caller: Caller
    readonly modelName: string
    readonly body: ChatBody
    readonly head?: AnswerHead
  },
): Generation<object> {
  const { body } = asked
  const model = getChatModel(catalogue, asked.caller, asked.modelName)
  const { input, tools } = chatRequest(body)
  const { newId, created } = asked.head ?? freshHead(clock)
  const head = {
    id: newId('chatcmpl-', CHAT_ID_LENGTH),
    created,
    model: model.id,
    systemFingerprint: systemFingerprint(model),
    serviceTier: serviceTierOf(body),
  }
  return {
    model,
    input,
    priorityClass: head.serviceTier,
    present: (outcome) => presentChat(head, tools, outcome),
    presenter: () => chatPresenter(head, { input, tools }, streamChoice(body)),
  }
}
