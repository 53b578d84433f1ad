import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import type { TokenizeInput } from '#shared/contracts/completion.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import {
  chatMessages,
  MESSAGE,
  MESSAGES_MAX,
  TEMPLATE_FIELDS,
  templateOptions,
} from './chat/chat-messages.ts'
import { TOOL_FIELDS, toolPlan } from './chat/chat-tools.ts'
import {
  invalidValue,
  missingParameter,
  optionalBoolean,
  optionalString,
  requiredUnless,
} from './field-schemas.ts'
import { SchemaBudget } from './input-limits.ts'
import { getCapableModel } from './model-route.ts'
import { RequestImages } from './request-images.ts'
import { JOB_ERRORS } from './response-schemas.ts'
import type { InferenceServices } from './services.ts'
import { tokenizePrompt } from './tokenize-prompt.ts'

const TOKENS_MAX = 262_144

const MODEL = Type.String({ minLength: 1, description: 'The id of a text model.' })

const TOKENIZE_BODY = Type.Object(
  {
    model: MODEL,
    prompt: optionalString({ description: 'A text; send either this or `messages`.' }),
    messages: Type.Optional(
      nullable(
        Type.Array(MESSAGE, {
          minItems: 1,
          maxItems: MESSAGES_MAX,
          description: 'A conversation, which is rendered by the chat template of the model.',
        }),
      ),
    ),
    tools: TOOL_FIELDS.tools,
    ...TEMPLATE_FIELDS,
    add_special_tokens: optionalBoolean({
      description:
        'Add the special tokens of the tokenizer; if absent, they are added to a `prompt` only.',
    }),
    return_token_strs: optionalBoolean({
      default: false,
      description: 'Return the text of every token as well.',
    }),
  },
  { additionalProperties: false, ...requiredUnless('prompt', 'string', ['messages']) },
)

const DETOKENIZE_BODY = Type.Object(
  {
    model: MODEL,
    tokens: Type.Array(Type.Integer({ minimum: 0 }), {
      maxItems: TOKENS_MAX,
      description: 'Token ids.',
    }),
  },
  { additionalProperties: false },
)

const TOKENIZE_RESPONSE = {
  type: 'object',
  description: 'The tokens.',
  required: ['count', 'max_model_len', 'tokens', 'token_strs'],
  properties: {
    count: { type: 'integer' },
    max_model_len: { type: 'integer', description: "The model's context length in tokens." },
    tokens: { type: 'array', items: { type: 'integer' } },
    token_strs: { type: ['array', 'null'], items: { type: 'string' } },
  },
}
const DETOKENIZE_RESPONSE = {
  type: 'object',
  description: 'The text.',
  required: ['prompt'],
  properties: { prompt: { type: 'string' } },
}

/** `POST /tokenize` and `/detokenize` of vLLM. */
export function registerTokenize(
  app: FastifyInstance,
  services: InferenceServices,
  suffix = '',
): void {
  const common = { tags: ['Tokens'], security: [{ apiKey: [] }] }
  app.post('/tokenize', {
    config: { scope: 'completions' },
    schema: {
      operationId: `tokenize${suffix}`,
      summary: 'Turn a text or conversation into token ids',
      ...common,
      body: TOKENIZE_BODY,
      response: { 200: TOKENIZE_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => tokenize({ request, reply }, services),
  })
  app.post('/detokenize', {
    config: { scope: 'completions' },
    schema: {
      operationId: `detokenize${suffix}`,
      summary: 'Turn token ids into text',
      ...common,
      body: DETOKENIZE_BODY,
      response: { 200: DETOKENIZE_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => detokenize({ request, reply }, services),
  })
}

type TokenizeBody = Static<typeof TOKENIZE_BODY>

async function tokenize(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as TokenizeBody
  const model = await modelOf(http, services, { name: body.model, endpoint: 'v1/tokenize' })
  const images = new RequestImages()
  const { tokenIds, contextLength, texts } = await tokenizePrompt(http, services, {
    model,
    images,
    prompt: promptOf(body, images),
    // A chat template writes its own markers.
    addSpecialTokens: body.add_special_tokens ?? typeof body.prompt === 'string',
    withTexts: body.return_token_strs ?? false,
  })
  return {
    count: tokenIds.length,
    max_model_len: contextLength,
    tokens: tokenIds,
    token_strs: texts ?? null,
  }
}

function promptOf(body: TokenizeBody, images: RequestImages): TokenizeInput['prompt'] {
  const { prompt, messages: fields } = body
  const isText = typeof prompt === 'string'
  if (fields === null || fields === undefined) {
    if (isText) return textPrompt(body, prompt)
    throw missingParameter('prompt')
  }
  if (isText) throw invalidValue('messages', "it cannot be given together with 'prompt'.")
  const messages = chatMessages(fields, images)
  const { template } = templateOptions(body, messages)
  const tools = toolPlan({ tools: body.tools ?? null }, new SchemaBudget())
  return {
    form: 'chat',
    messages,
    ...(tools !== undefined && { tools: tools.tools }),
    ...(template !== undefined && { template }),
  }
}

function textPrompt(body: TokenizeBody, text: string): TokenizeInput['prompt'] {
  for (const name of [...Object.keys(TEMPLATE_FIELDS), 'tools'] as const) {
    const value = body[name as keyof TokenizeBody]
    if (value === undefined || value === null || value === false) continue
    throw invalidValue(name, "it is only allowed with 'messages'.")
  }
  return { form: 'text', text }
}

async function detokenize(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as Static<typeof DETOKENIZE_BODY>
  const model = await modelOf(http, services, { name: body.model, endpoint: 'v1/detokenize' })
  const input = { task: 'detokenize', tokenIds: body.tokens } as const
  const { result } = await runJob(http, services, { kind: 'completion', model, input })
  if (result.task !== 'detokenize') throw new Error('tokens were answered with something else')
  return { prompt: result.text }
}

function modelOf(
  http: Http,
  services: InferenceServices,
  need: { readonly name: string; readonly endpoint: string },
) {
  return getCapableModel(services, callerOf(http.request), { ...need, kind: 'completion' })
}
