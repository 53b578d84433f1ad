import { errorResponses } from '#api/inference/response-schemas.ts'
import { NULLABLE_STRING } from '#api/v1/list-response.ts'

const ERROR = {
  type: 'object',
  required: ['type', 'error'],
  properties: {
    type: { const: 'error' },
    error: {
      type: 'object',
      required: ['type', 'message'],
      properties: {
        type: { type: 'string' },
        message: { type: 'string' },
        details: {
          type: 'object',
          description: 'Details of the error, with an `error_code` that clients know.',
        },
      },
    },
    request_id: NULLABLE_STRING,
  },
}

/** The errors of this dialect; 529 means that too much work is waiting. */
export const MESSAGES_ERRORS = Object.fromEntries(
  [400, 401, 403, 404, 413, 415, 429, 500, 504, 529].map((status) => {
    const [known] = Object.values(errorResponses(status === 529 ? 503 : status))
    const { description } = known as { description: string }
    return [status, { description, ...ERROR }]
  }),
)

const MESSAGE = {
  type: 'object',
  required: ['id', 'type', 'role', 'content', 'model', 'stop_reason', 'stop_sequence', 'usage'],
  properties: {
    id: { type: 'string' },
    type: { const: 'message' },
    role: { const: 'assistant' },
    model: { type: 'string' },
    content: {
      type: 'array',
      items: {
        type: 'object',
        required: ['type'],
        properties: { type: { type: 'string', enum: ['text', 'thinking', 'tool_use'] } },
      },
    },
    stop_reason: {
      type: ['string', 'null'],
      enum: ['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', null],
    },
    stop_sequence: NULLABLE_STRING,
    usage: {
      type: 'object',
      required: ['input_tokens', 'output_tokens'],
      properties: {
        input_tokens: { type: 'integer' },
        cache_creation_input_tokens: { type: 'integer' },
        cache_read_input_tokens: { type: 'integer' },
        output_tokens: { type: 'integer' },
        output_tokens_details: {
          type: 'object',
          properties: { thinking_tokens: { type: 'integer' } },
        },
        service_tier: { type: 'string' },
      },
    },
  },
}

/** The answer of `POST /v1/messages`. */
export const MESSAGE_RESPONSE = {
  description: 'The answer of the model.',
  content: {
    'application/json': { schema: MESSAGE },
    'text/event-stream': {
      schema: {
        description:
          'Server-sent events named `message_start`, `content_block_start`, `content_block_delta`, `content_block_stop`, `message_delta`, `message_stop` or `error`.',
      },
    },
  },
}

/** The answer of `POST /v1/messages/count_tokens`. */
export const COUNT_RESPONSE = {
  type: 'object',
  description: 'The number of tokens.',
  required: ['input_tokens'],
  properties: { input_tokens: { type: 'integer' } },
}
