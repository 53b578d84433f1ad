import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { REQUEST_FIELDS, serviceTierOf } from '#api/inference/chat/chat-request.ts'
import { RESPONSE_FIELDS, withFieldNames } from '#api/inference/field-names.ts'
import { ineffective, missingParameter, optionalString } from '#api/inference/field-schemas.ts'
import { validatedOf } from '#api/inference/generate.ts'
import { getCapableModel } from '#api/inference/model-route.ts'
import { requireVision, withImages } from '#api/inference/request-images.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { freshHead } from '#api/v1/request-context.ts'
import { Type } from '#shared/schema-types.ts'

import { readsThread, threadOf, withIds } from './response-thread.ts'
import { presentUsage } from './responses-answer.ts'
import { OPTIONAL_INPUT } from './responses-body.ts'
import { hexId, ResponseOutput } from './responses-output.ts'
import { itemsOf, responsesRequest } from './responses-request.ts'
import { USAGE } from './responses-schemas.ts'
import { sealSummary, summaryOpener } from './summaries.ts'

const COMPACT_BODY = Type.Object(
  {
    model: Type.String({
      minLength: 1,
      description: 'The id of the model that writes the summary.',
    }),
    input: OPTIONAL_INPUT,
    instructions: optionalString({ description: 'The system message of the conversation.' }),
    previous_response_id: optionalString({
      maxLength: 200,
      description:
        'The id of the stored response whose conversation is compacted; `input` is appended to it.',
    }),
    service_tier: REQUEST_FIELDS.service_tier,
    prompt_cache_key: REQUEST_FIELDS.prompt_cache_key,
    prompt_cache_options: ineffective({ type: ['object', 'null'] }),
    prompt_cache_retention: ineffective({ type: ['string', 'null'] }),
  },
  { additionalProperties: false },
)
type CompactBody = Static<typeof COMPACT_BODY>

const COMPACTION = {
  type: 'object',
  description: "The user's messages, and an item with the summary of the conversation.",
  required: ['id', 'object', 'created_at', 'output', 'usage'],
  properties: {
    id: { type: 'string' },
    object: { const: 'response.compaction' },
    created_at: { type: 'integer', description: 'A time in Unix seconds.' },
    output: { type: 'array', items: { type: 'object', required: ['id', 'type'] } },
    usage: USAGE,
  },
}

const REQUEST =
  'Summarize this conversation so that it can go on without its text: what the user wants, what is known and decided, what was done, and what is left to do. Answer with the summary alone.'

/** `POST /responses/compact`: shortens a conversation for the input of later responses. */
export function registerCompaction(app: FastifyInstance, services: InferenceServices): void {
  app.post('/responses/compact', {
    config: { scope: 'responses', readsContents: readsThread },
    schema: {
      operationId: 'compactResponse',
      summary: 'Replace a conversation with a summary',
      tags: ['Responses'],
      security: [{ apiKey: [] }],
      body: COMPACT_BODY,
      response: { 200: COMPACTION, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(RESPONSE_FIELDS, () => compact({ request, reply }, services)),
  })
}

async function compact(http: Http, services: InferenceServices): Promise<object> {
  const validated = validatedOf<CompactBody>(http, services.clock)
  const { body, caller, modelName, head = freshHead(services.clock) } = validated
  const { organizationId } = caller
  const model = await getCapableModel(services, caller, {
    name: modelName,
    kind: 'completion',
    capability: 'chat',
    endpoint: 'v1/responses/compact',
  })
  const { model: name, input: asked, instructions, previous_response_id: previousId } = body
  const thread = await threadOf(http, services, {
    model: name,
    input: asked ?? [],
    ...(typeof previousId === 'string' && { previous_response_id: previousId }),
  })
  const items = [...thread.earlier, ...itemsOf(thread.asked)]
  if (items.length === 0) throw missingParameter('input')
  const id = hexId('resp_', head.newId('resp_'))
  const { input, images } = responsesRequest(
    {
      model: name,
      instructions: instructions ?? null,
      temperature: 0,
      input: [...items, { type: 'message', role: 'user', content: REQUEST }],
    },
    { openSummary: summaryOpener(services.cipher, organizationId) },
  )
  requireVision(model, images)
  const job = { kind: 'completion', model, input, priorityClass: serviceTierOf(body) } as const
  const { result, usage } = await withImages(services, { images, organizationId }, () =>
    runJob(http, services, job),
  )
  if (result.task !== 'generate') throw new Error('a generation was answered with scores')
  const output = new ResponseOutput(id, undefined)
  output.reads(result.dialect)
  for (const candidate of result.candidates) output.push(candidate)
  const summary = sealSummary(textOf(output), services.cipher, organizationId)
  const said = withIds(id, items).filter(({ type, role }) => type === 'message' && role === 'user')
  return {
    id,
    object: 'response.compaction',
    created_at: head.created,
    output: [
      ...said.map((message) => ({ ...message, status: 'completed' })),
      { id: hexId('cmp_', `${id} compaction`), type: 'compaction', encrypted_content: summary },
    ],
    usage: presentUsage(usage),
  }
}

/** The answer of a model, without its reasoning. */
function textOf({ items }: ResponseOutput): string {
  const messages = items.filter((item) => item.type === 'message')
  return messages.flatMap(({ content }) => content.map(({ text }) => text)).join('\n')
}
