import type { FastifyInstance, FastifyReply } from 'fastify'

import { type Generation, generate, type Validated, validatedOf } from '#api/inference/generate.ts'
import { getCapableModel, type ModelDirectory } from '#api/inference/model-route.ts'
import { RequestImages, requireVision } from '#api/inference/request-images.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { tokenizePrompt } from '#api/inference/tokenize-prompt.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import type { PresentLimit } from '#api/limits/windows.ts'
import { callerOf, freshHead } from '#api/v1/request-context.ts'

import { messagePresenter, presentMessage } from './messages-answer.ts'
import { COUNT_BODY, type CountBody, MESSAGES_BODY, type MessagesBody } from './messages-body.ts'
import { presentMessagesError } from './messages-errors.ts'
import { MessageOutput } from './messages-output.ts'
import { countedPrompt, messagesRequest } from './messages-request.ts'
import { COUNT_RESPONSE, MESSAGE_RESPONSE, MESSAGES_ERRORS } from './messages-schemas.ts'

const MESSAGE_ID_LENGTH = 24

/** `POST /messages` and `/messages/count_tokens`: a chat in Anthropic's dialect. */
export function registerMessages(app: FastifyInstance, services: InferenceServices): void {
  const common = { tags: ['Messages'], security: [{ apiKey: [] }] }
  const config = {
    scope: 'chat',
    presentError: presentMessagesError,
    presentLimit: presentMessagesLimit,
  } as const
  app.post('/messages', {
    config,
    schema: {
      operationId: 'createMessage',
      summary: "Answer a conversation in the dialect of Anthropic's Messages",
      ...common,
      body: MESSAGES_BODY,
      response: { 200: MESSAGE_RESPONSE, ...MESSAGES_ERRORS },
    },
    handler: (request, reply) => answerMessage({ request, reply }, services),
  })
  app.post('/messages/count_tokens', {
    config,
    schema: {
      operationId: 'countMessageTokens',
      summary: 'Count the tokens of a conversation',
      ...common,
      body: COUNT_BODY,
      response: { 200: COUNT_RESPONSE, ...MESSAGES_ERRORS },
    },
    handler: (request, reply) => countTokens({ request, reply }, services),
  })
}

async function answerMessage(http: Http, services: InferenceServices): Promise<unknown> {
  nameRequest(http.reply)
  const validated = validatedOf<MessagesBody>(http, services.clock)
  return generate(http, services, await messageGeneration(services, validated, http.request.id))
}

/** The job of a message request, and the presentation of its result. */
export async function messageGeneration(
  services: ModelDirectory & Pick<InferenceServices, 'clock'>,
  validated: Validated<MessagesBody>,
  requestId: string,
): Promise<Generation<object>> {
  const { body } = validated
  const model = await getCapableModel(services, validated.caller, {
    name: validated.modelName,
    kind: 'completion',
    capability: 'chat',
    endpoint: 'v1/messages',
  })
  const { input, tools, images } = messagesRequest(body)
  requireVision(model, images)
  const { newId } = validated.head ?? freshHead(services.clock)
  const head = { id: newId('msg_', MESSAGE_ID_LENGTH), model: model.id, requestId }
  const openOutput = () =>
    new MessageOutput({
      messageId: head.id,
      tools,
      stopSequences: body.stop_sequences ?? [],
      thinking: thinkingOf(body),
    })
  return {
    model,
    input,
    images,
    present({ candidates, usage, dialect }) {
      const output = openOutput()
      if (dialect !== undefined) output.reads(dialect)
      for (const candidate of candidates) output.push(candidate)
      return presentMessage(head, output, usage)
    },
    presenter: () => messagePresenter(head, openOutput()),
  }
}

function thinkingOf({ thinking }: MessagesBody): 'asked' | 'refused' | 'unsaid' {
  if (!thinking) return 'unsaid'
  return thinking.type === 'disabled' ? 'refused' : 'asked'
}

async function countTokens(http: Http, services: InferenceServices): Promise<object> {
  nameRequest(http.reply)
  const body = http.request.body as CountBody
  const model = await getCapableModel(services, callerOf(http.request), {
    name: body.model,
    kind: 'completion',
    capability: 'chat',
    endpoint: 'v1/messages/count_tokens',
  })
  const images = new RequestImages()
  const prompt = countedPrompt(body, images)
  const { tokenIds } = await tokenizePrompt(http, services, { model, prompt, images })
  return { input_tokens: tokenIds.length }
}

/** The headers of a limit in this dialect; the reset is a time (RFC 3339) instead of a duration. */
const presentMessagesLimit: PresentLimit = ({ dimension, limit, remaining, resetMs }, nowMs) => ({
  [`anthropic-ratelimit-${dimension}-limit`]: String(limit),
  [`anthropic-ratelimit-${dimension}-remaining`]: String(remaining),
  [`anthropic-ratelimit-${dimension}-reset`]: new Date(nowMs + resetMs).toISOString(),
})

/** Sets the header in which this dialect's clients look for the request id. */
function nameRequest(reply: FastifyReply): void {
  reply.header('request-id', reply.request.id)
}
