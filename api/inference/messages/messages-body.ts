import { type Static, Type } from 'typebox'

import { CACHE_CONTROL, FUNCTION_NAME, TOOLS_MAX } from '#api/inference/chat/chat-tools.ts'
import { ineffective, optionalInteger, optionalString } from '#api/inference/field-schemas.ts'
import { EFFORT } from '#api/inference/reasoning-fields.ts'
import { SAMPLING_FIELDS, STOP_STRINGS_MAX } from '#api/inference/sampling-fields.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'

import {
  MESSAGES_SCHEMA,
  type MessageField,
  SYSTEM_SCHEMA,
  type SystemField,
} from './messages-input.ts'

/** A function that the model may call. */
export interface ToolField {
  readonly type?: 'custom' | null
  readonly name: string
  readonly description?: string
  readonly input_schema: object
  readonly strict?: boolean | null
}

/** Whether and which tool is called. */
export interface ToolChoiceField {
  readonly type: 'auto' | 'any' | 'tool' | 'none'
  readonly name?: string
  readonly disable_parallel_tool_use?: boolean
}

interface ThinkingField {
  readonly type: 'enabled' | 'disabled' | 'adaptive'
  readonly budget_tokens?: number | null
}

interface OutputConfig {
  readonly effort?: Static<typeof EFFORT>
  readonly format?: { readonly type: 'json_schema'; readonly schema: object } | null
}

const PARALLEL = { disable_parallel_tool_use: { type: 'boolean' } }

const TOOL = {
  type: 'object',
  required: ['name', 'input_schema'],
  properties: {
    type: {
      type: ['string', 'null'],
      enum: ['custom', null],
      description: 'Tools that run on the server are not offered.',
    },
    name: FUNCTION_NAME,
    description: { type: 'string' },
    input_schema: { type: 'object', description: 'A JSON Schema.' },
    strict: { type: ['boolean', 'null'] },
    cache_control: CACHE_CONTROL,
    input_examples: { type: 'array' },
    eager_input_streaming: { type: ['boolean', 'null'] },
    defer_loading: { type: 'boolean' },
    allowed_callers: { type: 'array' },
  },
  additionalProperties: false,
}

const PROMPT_FIELDS = {
  model: Type.String({ minLength: 1, description: 'The id of a model.' }),
  messages: Type.Unsafe<readonly MessageField[]>(MESSAGES_SCHEMA),
  system: Type.Optional(Type.Unsafe<SystemField>(SYSTEM_SCHEMA)),
  tools: Type.Optional(
    Type.Unsafe<readonly ToolField[]>({
      type: 'array',
      maxItems: TOOLS_MAX,
      items: TOOL,
      description: 'Functions that the model may call.',
    }),
  ),
  tool_choice: Type.Optional(
    Type.Unsafe<ToolChoiceField>({
      ...variantSchema({
        auto: { properties: PARALLEL },
        any: { properties: PARALLEL },
        tool: { required: ['name'], properties: { name: { type: 'string' }, ...PARALLEL } },
        none: { properties: {} },
      }),
      description: 'Whether and which tool is called.',
    }),
  ),
  thinking: Type.Optional(
    Type.Unsafe<ThinkingField>({
      type: 'object',
      required: ['type'],
      properties: {
        type: { type: 'string', enum: ['enabled', 'disabled', 'adaptive'] },
        budget_tokens: optionalInteger({ minimum: 0, description: 'Tokens of reasoning at most.' }),
        display: { type: ['string', 'null'] },
      },
      additionalProperties: false,
      description:
        'When enabled, what the model writes between `<think>` and `</think>` becomes a thinking block.',
    }),
  ),
  cache_control: Type.Optional(Type.Unsafe<object | null>(CACHE_CONTROL)),
  output_config: Type.Optional(
    Type.Unsafe<OutputConfig | null>({
      type: ['object', 'null'],
      properties: {
        effort: EFFORT,
        format: {
          type: ['object', 'null'],
          required: ['type', 'schema'],
          properties: {
            type: { type: 'string', enum: ['json_schema'] },
            schema: { type: 'object' },
          },
          additionalProperties: false,
        },
      },
      additionalProperties: false,
      description: 'With `format`: the JSON Schema that the answer fits.',
    }),
  ),
}

/** The body of `POST /v1/messages`. */
export const MESSAGES_BODY = Type.Object(
  {
    ...PROMPT_FIELDS,
    max_tokens: Type.Integer({
      minimum: 1,
      description: 'Longest answer in tokens; cut to what fits into the context window.',
    }),
    temperature: SAMPLING_FIELDS.temperature,
    top_p: SAMPLING_FIELDS.top_p,
    top_k: SAMPLING_FIELDS.top_k,
    stop_sequences: Type.Optional(
      Type.Unsafe<readonly string[]>({
        type: 'array',
        maxItems: STOP_STRINGS_MAX,
        items: { type: 'string', minLength: 1, maxLength: 1024 },
        description: 'Strings at which generation ends; they are not part of the answer.',
      }),
    ),
    stream: SAMPLING_FIELDS.stream,
    metadata: Type.Optional(
      Type.Unsafe<{ readonly user_id?: string | null }>({
        type: 'object',
        properties: { user_id: { type: ['string', 'null'], maxLength: 512 } },
        additionalProperties: false,
      }),
    ),
    service_tier: optionalString({ enum: ['auto', 'standard_only', null] }),
    inference_geo: ineffective({ type: ['string', 'null'] }),
    speed: ineffective({ type: ['string', 'null'] }, ['standard']),
    container: ineffective({ type: ['string', 'object', 'null'] }),
    context_management: ineffective({ type: ['object', 'null'] }),
  },
  { additionalProperties: false },
)

/** The body of `POST /v1/messages/count_tokens`. */
export const COUNT_BODY = Type.Object(PROMPT_FIELDS, { additionalProperties: false })

export type MessagesBody = Static<typeof MESSAGES_BODY>
export type CountBody = Static<typeof COUNT_BODY>
