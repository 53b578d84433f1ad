import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { RESPONSE_FIELDS, withFieldNames } from '#api/inference/field-names.ts'
import { missingParameter } from '#api/inference/field-schemas.ts'
import { getCapableModel } from '#api/inference/model-route.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { tokenizePrompt } from '#api/inference/tokenize-prompt.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { Type } from '#shared/schema-types.ts'

import { readsThread, threadOf } from './response-thread.ts'
import { OPTIONAL_INPUT, RESPONSES_BODY } from './responses-body.ts'
import { itemsOf, responsesRequest } from './responses-request.ts'
import { summaryOpener } from './summaries.ts'

const { model, ...FIELDS } = RESPONSES_BODY.properties

const COUNT_BODY = Type.Object(
  {
    model,
    input: OPTIONAL_INPUT,
    instructions: FIELDS.instructions,
    previous_response_id: FIELDS.previous_response_id,
    conversation: FIELDS.conversation,
    tools: FIELDS.tools,
    tool_choice: FIELDS.tool_choice,
    parallel_tool_calls: FIELDS.parallel_tool_calls,
    text: FIELDS.text,
    reasoning: FIELDS.reasoning,
    truncation: FIELDS.truncation,
  },
  { additionalProperties: false },
)

const COUNT = {
  type: 'object',
  description: 'The number of input tokens of this request.',
  required: ['object', 'input_tokens'],
  properties: { object: { const: 'response.input_tokens' }, input_tokens: { type: 'integer' } },
}

/** `POST /responses/input_tokens`: counts the tokens of a request without answering it. */
export function registerInputTokens(app: FastifyInstance, services: InferenceServices): void {
  app.post('/responses/input_tokens', {
    config: { scope: 'responses', readsContents: readsThread },
    schema: {
      operationId: 'countResponseTokens',
      summary: 'Count the tokens of a request for a response',
      tags: ['Responses'],
      security: [{ apiKey: [] }],
      body: COUNT_BODY,
      response: { 200: COUNT, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(RESPONSE_FIELDS, () => countTokens({ request, reply }, services)),
  })
}

async function countTokens(http: Http, services: InferenceServices): Promise<object> {
  const asked = http.request.body as Static<typeof COUNT_BODY>
  const caller = callerOf(http.request)
  const model = await getCapableModel(services, caller, {
    name: asked.model,
    kind: 'completion',
    capability: 'chat',
    endpoint: 'v1/responses/input_tokens',
  })
  const body = { ...asked, input: asked.input ?? [] }
  const { earlier, asked: input } = await threadOf(http, services, body)
  const isEmpty = earlier.length === 0 && itemsOf(input).length === 0
  if (isEmpty && typeof body.instructions !== 'string') throw missingParameter('input')
  const openSummary = summaryOpener(services.cipher, caller.organizationId)
  const request = responsesRequest(body, { earlier, asked: input, openSummary })
  const [prompt] = request.input.prompts
  if (prompt?.form !== 'chat') throw new Error('a response was asked for without a chat')
  const { images } = request
  const { tokenIds } = await tokenizePrompt(http, services, { model, prompt, images })
  return { object: 'response.input_tokens', input_tokens: tokenIds.length }
}
