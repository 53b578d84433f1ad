import type { FastifyInstance } from 'fastify'

import { type Generation, generate, type Validated, validatedOf } from '#api/inference/generate.ts'
import {
  getChatModel,
  type ModelDirectory,
  registerModelRoute,
  systemFingerprint,
} from '#api/inference/model-route.ts'
import { showsReasoning } from '#api/inference/reasoning-fields.ts'
import { requireVision } from '#api/inference/request-images.ts'
import { answerOrStream, CHAT_RESPONSE } from '#api/inference/response-schemas.ts'
import { streamChoice } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { freshHead } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import { type ChatHead, chatPresenter, presentChat } from './chat-answer.ts'
import {
  CHAT_BODY,
  type ChatBody,
  chatRequest,
  ENGINE_CHAT_BODY,
  echoedOf,
  refuseResponseBody,
  serviceTierOf,
} from './chat-request.ts'
import { storeChat, storedWhenStreamed } from './stored-chats.ts'

const CHAT_ID_LENGTH = 29

/** `POST /chat/completions` and its older path. */
export function registerChatCompletions(app: FastifyInstance, services: InferenceServices): void {
  registerModelRoute(app, {
    path: '/chat/completions',
    scope: 'chat',
    noun: 'ChatCompletion',
    summary: 'Answer a chat conversation',
    tag: 'Chat',
    body: CHAT_BODY,
    engineBody: ENGINE_CHAT_BODY,
    precheck: refuseResponseBody,
    answer: answerOrStream('The answers of the model.', CHAT_RESPONSE),
    handle: (http) => chat(http, services),
  })
}

async function chat(http: Http, services: InferenceServices): Promise<unknown> {
  const validated = validatedOf<ChatBody>(http, services.clock)
  const generation = await chatGeneration(services, validated)
  if (validated.body.store !== true) return generate(http, services, generation)
  if (services.stored === undefined) throw notStored()
  const save = (answer: object): Promise<void> => storeChat(http, services, answer)
  const answer = await generate(http, services, storedWhenStreamed(generation, save))
  if (!http.reply.sent) await save(answer)
  return answer
}

function notStored(): ServiceError {
  return failure.invalidRequest(
    "Unsupported value: 'store' does not support true here. Leave it out.",
    { param: 'store', code: 'unsupported_value' },
  )
}

/** The job of a chat request, and the presentation of its result. */
export async function chatGeneration(
  services: ModelDirectory & Pick<InferenceServices, 'clock'>,
  validated: Validated<ChatBody>,
): Promise<Generation<object>> {
  const { body } = validated
  const model = await getChatModel(services, validated.caller, validated.modelName)
  const { input, tools, images } = chatRequest(body, [{ path: 'messages', fields: body.messages }])
  requireVision(model, images)
  const head = { ...chatHead(services, validated, model), echoed: echoedOf(body) }
  return {
    model,
    input,
    images,
    priorityClass: head.serviceTier,
    present: (outcome) => presentChat(head, tools, outcome),
    presenter: () => chatPresenter(head, { input, tools }, streamChoice(body)),
  }
}

/** The fields that the chunks and answers of a chat request share. */
export function chatHead(
  { clock }: Pick<InferenceServices, 'clock'>,
  { body, head }: Pick<Validated<Omit<ChatBody, 'messages'>>, 'body' | 'head'>,
  model: CatalogueModel,
): Omit<ChatHead, 'echoed'> {
  const { newId, created } = head ?? freshHead(clock)
  return {
    id: newId('chatcmpl-', CHAT_ID_LENGTH),
    created,
    model: model.id,
    systemFingerprint: systemFingerprint(model),
    serviceTier: serviceTierOf(body),
    showsReasoning: showsReasoning(body),
  }
}
