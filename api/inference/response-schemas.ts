import { ERROR_BODY } from '#api/http/error-schemas.ts'
import { NULLABLE_STRING } from '#api/v1/list-response.ts'

/** Schemas of what the routes answer, for the OpenAPI document. */
const ERROR_DESCRIPTIONS: Readonly<Record<number, string>> = {
  400: 'The request is not valid; `param` names the field.',
  401: 'The API key is missing or wrong.',
  403: 'The API key may not do this.',
  404: 'There is no such model or object.',
  413: 'The body is too large.',
  415: 'The body is of the wrong type.',
  429: 'Too many requests of this caller; see Retry-After.',
  500: 'The fault is ours.',
  503: 'Too much work is waiting; see Retry-After.',
  504: 'The deadline passed before the answer was complete.',
}

/** The error answers of a route, by status. */
export function errorResponses(...statuses: readonly number[]): Record<number, object> {
  return Object.fromEntries(
    statuses.map((status) => [
      status,
      { description: ERROR_DESCRIPTIONS[status] ?? 'Error', ...ERROR_BODY },
    ]),
  )
}

/** The errors of every route that runs a model. */
export const JOB_ERRORS = errorResponses(400, 401, 403, 404, 413, 415, 429, 500, 503, 504)

/** An answer that is JSON or, if requested, a stream of events. */
export function answerOrStream(description: string, schema: object): object {
  return {
    description,
    content: {
      'application/json': { schema },
      'text/event-stream': {
        schema: {
          description: 'Server-sent events `data: {…}` with one chunk each, then `data: [DONE]`.',
        },
      },
    },
  }
}

const USAGE = {
  type: 'object',
  required: ['prompt_tokens', 'completion_tokens', 'total_tokens'],
  properties: {
    prompt_tokens: { type: 'integer' },
    completion_tokens: { type: 'integer' },
    total_tokens: { type: 'integer' },
    prompt_tokens_details: {
      type: 'object',
      properties: { cached_tokens: { type: 'integer' } },
    },
    completion_tokens_details: {
      type: 'object',
      properties: { reasoning_tokens: { type: 'integer' } },
    },
  },
}

/** The usage of answers without generated tokens. */
export const PROMPT_USAGE = {
  type: 'object',
  required: ['prompt_tokens', 'total_tokens'],
  properties: { prompt_tokens: { type: 'integer' }, total_tokens: { type: 'integer' } },
}

const TOKEN_IDS = {
  type: 'array',
  items: { type: 'integer' },
  description: 'Present with `return_token_ids`.',
}
const PROMPT_LOGPROBS = {
  type: 'array',
  description:
    'Present with `prompt_logprobs`: for each token of the prompt, its log-probability and those of the most likely tokens, by token id; null for the first token.',
  items: {
    type: ['object', 'null'],
    additionalProperties: {
      type: 'object',
      required: ['logprob', 'rank', 'decoded_token'],
      properties: {
        logprob: { type: 'number' },
        rank: { type: 'integer' },
        decoded_token: { type: 'string' },
      },
    },
  },
}
const NUMBERS_OR_NULL = { type: 'array', items: { type: ['number', 'null'] } }

/** The answer of `POST /v1/completions`. */
export const COMPLETION_RESPONSE = {
  type: 'object',
  required: ['id', 'object', 'created', 'model', 'choices', 'usage'],
  properties: {
    id: { type: 'string' },
    object: { const: 'text_completion' },
    created: { type: 'integer' },
    model: { type: 'string' },
    system_fingerprint: { type: 'string' },
    choices: {
      type: 'array',
      items: {
        type: 'object',
        required: ['text', 'index', 'logprobs', 'finish_reason'],
        properties: {
          text: { type: 'string' },
          index: { type: 'integer' },
          logprobs: {
            type: ['object', 'null'],
            required: ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset'],
            properties: {
              tokens: { type: 'array', items: { type: 'string' } },
              token_logprobs: NUMBERS_OR_NULL,
              top_logprobs: { type: ['array', 'null'], items: { type: ['object', 'null'] } },
              text_offset: { type: 'array', items: { type: 'integer' } },
            },
          },
          finish_reason: { type: 'string', enum: ['stop', 'length'] },
          token_ids: TOKEN_IDS,
          prompt_token_ids: TOKEN_IDS,
          prompt_logprobs: PROMPT_LOGPROBS,
        },
      },
    },
    usage: USAGE,
  },
}

/** The answer of `POST /v1/edits`. */
export const EDIT_RESPONSE = {
  type: 'object',
  description: 'The edited texts.',
  required: ['object', 'created', 'choices', 'usage'],
  properties: {
    object: { const: 'edit' },
    created: { type: 'integer' },
    choices: {
      type: 'array',
      items: {
        type: 'object',
        required: ['text', 'index'],
        properties: { text: { type: 'string' }, index: { type: 'integer' } },
      },
    },
    usage: USAGE,
  },
}

const FUNCTION_CALL = {
  type: 'object',
  required: ['name', 'arguments'],
  properties: {
    name: { type: 'string' },
    arguments: { type: 'string', description: 'The arguments as JSON text.' },
  },
}

const CUSTOM_CALL = {
  type: 'object',
  required: ['name', 'input'],
  properties: { name: { type: 'string' }, input: { type: 'string' } },
}

const toolCall = (type: string, call: object) => ({
  type: 'object',
  required: ['id', 'type', type],
  properties: { id: { type: 'string' }, type: { const: type }, [type]: call },
})

/** The answer of `POST /v1/chat/completions`. */
export const CHAT_RESPONSE = {
  type: 'object',
  required: ['id', 'object', 'created', 'model', 'choices', 'usage'],
  properties: {
    id: { type: 'string' },
    object: { const: 'chat.completion' },
    created: { type: 'integer' },
    model: { type: 'string' },
    prompt_token_ids: TOKEN_IDS,
    prompt_logprobs: PROMPT_LOGPROBS,
    choices: {
      type: 'array',
      items: {
        type: 'object',
        required: ['index', 'message', 'logprobs', 'finish_reason'],
        properties: {
          index: { type: 'integer' },
          token_ids: TOKEN_IDS,
          message: {
            type: 'object',
            required: ['role', 'content'],
            properties: {
              role: { const: 'assistant' },
              content: NULLABLE_STRING,
              reasoning_content: {
                type: ['string', 'null'],
                description:
                  'The reasoning before the answer, for models that mark their reasoning; null if there is none.',
              },
              reasoning: { ...NULLABLE_STRING, description: 'The same as `reasoning_content`.' },
              refusal: NULLABLE_STRING,
              annotations: { type: 'array' },
              tool_calls: {
                type: 'array',
                items: {
                  anyOf: [toolCall('function', FUNCTION_CALL), toolCall('custom', CUSTOM_CALL)],
                },
              },
              function_call: FUNCTION_CALL,
            },
          },
          logprobs: { type: ['object', 'null'] },
          finish_reason: {
            type: 'string',
            enum: ['stop', 'length', 'tool_calls', 'function_call'],
          },
        },
      },
    },
    usage: USAGE,
    service_tier: { type: 'string', enum: ['default', 'flex', 'priority'] },
    system_fingerprint: { type: 'string' },
  },
}

/** An answer of vLLM's scoring and classification: a list with a row for each text. */
export function rowsAnswer(description: string, row: object): object {
  return {
    type: 'object',
    description,
    required: ['id', 'object', 'created', 'model', 'data', 'usage'],
    properties: {
      id: { type: 'string' },
      object: { const: 'list' },
      created: { type: 'integer' },
      model: { type: 'string' },
      data: { type: 'array', items: { type: 'object', ...row } },
      usage: PROMPT_USAGE,
    },
  }
}
