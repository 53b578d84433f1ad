import { NULLABLE_STRING } from '#api/v1/list-response.ts'

const STATUS = { type: 'string', enum: ['in_progress', 'completed', 'incomplete'] }

const MESSAGE = {
  type: 'object',
  required: ['id', 'type', 'status', 'role', 'content'],
  properties: {
    id: { type: 'string' },
    type: { const: 'message' },
    status: STATUS,
    role: { const: 'assistant' },
    content: {
      type: 'array',
      items: {
        type: 'object',
        required: ['type', 'text', 'annotations', 'logprobs'],
        properties: {
          type: { const: 'output_text' },
          text: { type: 'string' },
          annotations: { type: 'array' },
          logprobs: { type: 'array', items: { type: 'object' } },
        },
      },
    },
  },
}

/** A call of a tool; the field has what the model wrote for it. */
const callOf = (type: string, field: string, written: object) => ({
  type: 'object',
  required: ['id', 'type', 'status', 'call_id', 'name', field],
  properties: {
    id: { type: 'string' },
    type: { const: type },
    status: STATUS,
    call_id: { type: 'string' },
    name: { type: 'string' },
    namespace: { type: 'string', description: 'The namespace of the tool, if it has one.' },
    [field]: { type: 'string', ...written },
  },
})

const FUNCTION_CALL = callOf('function_call', 'arguments', {
  description: 'The arguments as JSON text.',
})
const CUSTOM_TOOL_CALL = callOf('custom_tool_call', 'input', {})

const REASONING = {
  type: 'object',
  required: ['id', 'type', 'status', 'summary', 'content'],
  properties: {
    id: { type: 'string' },
    type: { const: 'reasoning' },
    status: STATUS,
    summary: { type: 'array', maxItems: 0 },
    content: {
      type: 'array',
      items: {
        type: 'object',
        required: ['type', 'text'],
        properties: { type: { const: 'reasoning_text' }, text: { type: 'string' } },
      },
    },
  },
}

/** Token counts of responses and batches. */
export const USAGE = {
  type: 'object',
  required: ['input_tokens', 'output_tokens', 'total_tokens'],
  properties: {
    input_tokens: { type: 'integer' },
    input_tokens_details: {
      type: 'object',
      properties: {
        cached_tokens: { type: 'integer' },
        cache_write_tokens: { type: 'integer' },
      },
    },
    output_tokens: { type: 'integer' },
    output_tokens_details: {
      type: 'object',
      properties: { reasoning_tokens: { type: 'integer' } },
    },
    total_tokens: { type: 'integer' },
  },
}

/** A response, as routes answer it. */
export const RESPONSE = {
  type: 'object',
  required: ['id', 'object', 'created_at', 'status', 'model', 'output', 'usage', 'error'],
  properties: {
    id: { type: 'string' },
    object: { const: 'response' },
    created_at: { type: 'integer', description: 'A time in Unix seconds.' },
    status: {
      type: 'string',
      enum: [...['completed', 'incomplete', 'failed', 'in_progress', 'queued', 'cancelled']],
    },
    background: { type: 'boolean' },
    conversation: { type: ['object', 'null'], properties: { id: { type: 'string' } } },
    completed_at: { type: ['integer', 'null'], description: 'A time in Unix seconds.' },
    error: {
      type: ['object', 'null'],
      properties: { code: { type: 'string' }, message: { type: 'string' } },
    },
    incomplete_details: {
      type: ['object', 'null'],
      properties: { reason: { const: 'max_output_tokens' } },
    },
    instructions: NULLABLE_STRING,
    max_output_tokens: { type: ['integer', 'null'] },
    max_tool_calls: { type: ['integer', 'null'] },
    model: { type: 'string' },
    output: {
      type: 'array',
      items: { anyOf: [MESSAGE, FUNCTION_CALL, CUSTOM_TOOL_CALL, REASONING] },
    },
    parallel_tool_calls: { type: 'boolean' },
    previous_response_id: NULLABLE_STRING,
    prompt_cache_key: NULLABLE_STRING,
    reasoning: { type: 'object' },
    safety_identifier: NULLABLE_STRING,
    service_tier: { type: 'string', enum: ['default', 'flex', 'priority'] },
    store: { type: 'boolean' },
    temperature: { type: 'number' },
    text: { type: 'object', properties: { format: { type: 'object' } } },
    tool_choice: { anyOf: [{ type: 'string' }, { type: 'object' }] },
    tools: { type: 'array', items: { type: 'object' } },
    top_logprobs: { type: 'integer' },
    top_p: { type: 'number' },
    truncation: { const: 'disabled' },
    usage: { anyOf: [USAGE, { type: 'null' }] },
    user: NULLABLE_STRING,
    metadata: { type: 'object', additionalProperties: { type: 'string' } },
  },
}

/** The answer of `POST /v1/responses`. */
export const RESPONSES_ANSWER = {
  description: 'The output items of the model.',
  content: {
    'application/json': { schema: RESPONSE },
    'text/event-stream': {
      schema: {
        description:
          'Server-sent events whose name equals their `type`, with an increasing `sequence_number`: from `response.created` through items, parts and deltas to `response.completed` or `response.incomplete`; `response.failed` or `error` if the response fails.',
      },
    },
  },
}
