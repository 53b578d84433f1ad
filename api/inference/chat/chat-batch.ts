import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { fixed, modelBodies, unsupported } from '#api/inference/field-schemas.ts'
import { type Generation, generate, type Validated, validatedOf } from '#api/inference/generate.ts'
import { getChatModel, type ModelDirectory } from '#api/inference/model-route.ts'
import { requireVision } from '#api/inference/request-images.ts'
import { CHAT_RESPONSE, JOB_ERRORS } from '#api/inference/response-schemas.ts'
import { CANDIDATES_MAX } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'

import { presentChat } from './chat-answer.ts'
import { chatHead } from './chat-completions.ts'
import { MESSAGE, MESSAGES_MAX } from './chat-messages.ts'
import { CHAT_FIELDS, chatRequest, echoedOf } from './chat-request.ts'

const { body: BATCH_BODY } = modelBodies({
  ...CHAT_FIELDS,
  messages: Type.Array(Type.Array(MESSAGE, { minItems: 1, maxItems: MESSAGES_MAX }), {
    minItems: 1,
    maxItems: CANDIDATES_MAX,
    description: 'The conversations, each of which gets one answer.',
  }),
  n: fixed([1]),
  stream: fixed([false]),
  store: fixed([false]),
  stream_options: unsupported(),
  prompt_logprobs: unsupported(),
  tools: unsupported(),
  tool_choice: unsupported(),
  parallel_tool_calls: unsupported(),
  functions: unsupported(),
  function_call: unsupported(),
})

type BatchBody = Static<typeof BATCH_BODY>

/**
 * `POST /chat/completions/batch` of vLLM: conversations that share their other fields. The answer
 * has one choice for each, in their order.
 */
export function registerChatBatch(app: FastifyInstance, services: InferenceServices): void {
  app.post('/chat/completions/batch', {
    config: { scope: 'chat' },
    schema: {
      operationId: 'createChatCompletionBatch',
      summary: 'Answer several conversations',
      tags: ['Chat'],
      security: [{ apiKey: [] }],
      body: BATCH_BODY,
      response: { 200: { ...CHAT_RESPONSE, description: 'The answers.' }, ...JOB_ERRORS },
    },
    handler: async (request, reply) => {
      const http = { request, reply }
      const validated = validatedOf<BatchBody>(http, services.clock)
      return generate(http, services, await batchGeneration(services, validated))
    },
  })
}

async function batchGeneration(
  services: ModelDirectory & Pick<InferenceServices, 'clock'>,
  validated: Validated<BatchBody>,
): Promise<Generation<object>> {
  const { body } = validated
  const conversations = body.messages
  checkCount(conversations)
  const model = await getChatModel(services, validated.caller, validated.modelName)
  const { input, images } = chatRequest(
    body,
    conversations.map((fields, index) => ({ path: `messages[${index}]`, fields })),
  )
  requireVision(model, images)
  const head = chatHead(services, validated, model)
  const echoed = conversations.map((messages) => echoedOf({ echo: body.echo ?? null, messages }))
  return {
    model,
    input,
    images,
    priorityClass: head.serviceTier,
    present({ candidates, ...outcome }) {
      const answers = candidates.map((candidate) => {
        const own = { ...head, echoed: echoed[candidate.index] ?? '' }
        return presentChat(own, undefined, { ...outcome, candidates: [candidate] })
      })
      const { prompt_token_ids: _first, ...answer } = answers[0] as ReturnType<typeof presentChat>
      return { ...answer, choices: answers.flatMap(({ choices }) => choices) }
    },
    presenter() {
      throw new Error('answers of several conversations are not streamed')
    },
  }
}

/** Throws when the conversations have more messages than one chat may have. */
function checkCount(conversations: BatchBody['messages']): void {
  const count = conversations.reduce((sum, messages) => sum + messages.length, 0)
  if (count <= MESSAGES_MAX) return
  throw failure.invalidRequest(
    `Invalid 'messages': the conversations have ${count} messages, but a request may have at most ${MESSAGES_MAX}.`,
    { param: 'messages', code: 'array_above_max_length' },
  )
}
