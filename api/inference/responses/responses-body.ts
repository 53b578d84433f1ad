import { type Static, Type } from 'typebox'

import { REQUEST_FIELDS, TOP_LOGPROBS_MAX } from '#api/inference/chat/chat-request.ts'
import { FUNCTION_NAME, TOOLS_MAX } from '#api/inference/chat/chat-tools.ts'
import {
  answerLength,
  fixed,
  ineffective,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalString,
  unsupported,
} from '#api/inference/field-schemas.ts'
import { EFFORT, VERBOSITY } from '#api/inference/reasoning-fields.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'

import { INPUT_SCHEMA, type InputField } from './responses-input.ts'

interface FunctionTool {
  readonly type: 'function'
  readonly name: string
  readonly description?: string | null
  readonly parameters?: object | null
  readonly strict?: boolean | null
}
/** A function that a choice names. */
export interface NamedTool {
  readonly type: 'function'
  readonly name: string
}
/** Whether and which function is to be called. */
export type ToolChoiceField =
  | 'none'
  | 'auto'
  | 'required'
  | NamedTool
  | {
      readonly type: 'allowed_tools'
      readonly mode: 'auto' | 'required'
      readonly tools: readonly NamedTool[]
    }
type TextFormat =
  | { readonly type: 'text' | 'json_object' }
  | {
      readonly type: 'json_schema'
      readonly name: string
      readonly schema: object
      readonly description?: string | null
      readonly strict?: boolean | null
    }

interface TextField {
  readonly format?: TextFormat
  readonly verbosity?: Static<typeof VERBOSITY>
}

/** The value of `include` that requests log-probabilities. */
export const LOGPROBS = 'message.output_text.logprobs'
// Agents send it with every request; reasoning is never encrypted here, so there is none.
const REASONING = 'reasoning.encrypted_content'

interface ReasoningField {
  readonly effort?: Static<typeof EFFORT>
  readonly summary?: string | null
}
const SUMMARY = ineffective({
  type: ['string', 'null'],
  enum: ['auto', 'concise', 'detailed', null],
})
const REASONING_OPTIONS = {
  type: ['object', 'null'],
  properties: { effort: EFFORT, summary: SUMMARY, generate_summary: SUMMARY },
  additionalProperties: false,
  description: 'How much the model reasons; a summary is never written.',
}

const NAMED_TOOL = { required: ['name'], properties: { name: { type: 'string' } } }
const TOOL = variantSchema({
  function: {
    required: ['name'],
    properties: {
      name: FUNCTION_NAME,
      description: { type: ['string', 'null'] },
      parameters: { type: ['object', 'null'], description: 'A JSON Schema.' },
      strict: { type: ['boolean', 'null'] },
    },
  },
})
const TOOL_CHOICE = {
  anyOf: [
    { type: ['string', 'null'], enum: ['none', 'auto', 'required', null] },
    variantSchema({
      function: NAMED_TOOL,
      allowed_tools: {
        required: ['mode', 'tools'],
        properties: {
          mode: { type: 'string', enum: ['auto', 'required'] },
          tools: {
            type: 'array',
            maxItems: TOOLS_MAX,
            items: variantSchema({ function: NAMED_TOOL }),
          },
        },
      },
    }),
  ],
  description: 'Whether and which function is called: none, auto, required, or a name.',
}
const TEXT = {
  type: ['object', 'null'],
  properties: {
    format: {
      ...variantSchema({
        text: { properties: {} },
        json_object: { properties: {} },
        json_schema: {
          required: ['name', 'schema'],
          properties: {
            name: FUNCTION_NAME,
            schema: { type: 'object' },
            description: { type: ['string', 'null'] },
            strict: { type: ['boolean', 'null'] },
          },
        },
      }),
      description: 'What the answer must be: text, any JSON object, or JSON that fits a schema.',
    },
    verbosity: VERBOSITY,
  },
  additionalProperties: false,
}

/** The body of `POST /v1/responses`. */
export const RESPONSES_BODY = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'The id of a model.' }),
    input: Type.Unsafe<InputField>(INPUT_SCHEMA),
    instructions: optionalString({ description: 'The system message of the response.' }),
    max_output_tokens: answerLength(
      'Longest answer in tokens; the rest of the context window if absent.',
    ),
    temperature: SAMPLING_FIELDS.temperature,
    top_p: SAMPLING_FIELDS.top_p,
    top_k: SAMPLING_FIELDS.top_k,
    seed: SAMPLING_FIELDS.seed,
    stop: SAMPLING_FIELDS.stop,
    stream: SAMPLING_FIELDS.stream,
    stream_options: Type.Optional(
      Type.Unsafe<{ readonly include_obfuscation?: boolean | null } | null>({
        type: ['object', 'null'],
        properties: {
          include_obfuscation: {
            type: ['boolean', 'null'],
            description: 'Pad deltas with random characters, so that their sizes reveal nothing.',
          },
          // The last event always has it.
          include_usage: fixed([true]),
        },
        additionalProperties: false,
        description: 'Only with `stream`.',
      }),
    ),
    tools: Type.Optional(
      Type.Unsafe<readonly FunctionTool[] | null>({
        type: ['array', 'null'],
        maxItems: TOOLS_MAX,
        items: TOOL,
        description: 'Functions that the model may call.',
      }),
    ),
    tool_choice: Type.Optional(Type.Unsafe<ToolChoiceField | null>(TOOL_CHOICE)),
    parallel_tool_calls: optionalBoolean({
      default: true,
      description: 'False allows one call at most.',
    }),
    text: Type.Optional(Type.Unsafe<TextField | null>(TEXT)),
    include: Type.Optional(
      Type.Unsafe<readonly (typeof LOGPROBS | typeof REASONING)[] | null>({
        type: ['array', 'null'],
        maxItems: 16,
        items: { type: 'string', enum: [LOGPROBS, REASONING] },
        description:
          'What the answer has besides: the log-probabilities of its tokens; of reasoning there is none.',
      }),
    ),
    top_logprobs: optionalInteger({
      minimum: 0,
      maximum: TOP_LOGPROBS_MAX,
      description: 'Alternatives per token; only with the log-probabilities in `include`.',
    }),
    ...REQUEST_FIELDS,
    user: SAMPLING_FIELDS.user,
    timeout: SAMPLING_FIELDS.timeout,
    truncation: optionalEnum(['auto', 'disabled'], {
      default: 'disabled',
      description:
        'With `auto`, the oldest items of a conversation that is too long for the model are dropped; `x-millrace-dropped-messages` says how many.',
    }),
    store: optionalBoolean({
      description:
        'Whether the response can be fetched and continued later; the default is a setting of the installation.',
    }),
    background: optionalBoolean({
      description: 'Answer at once, and run the response as a background job; needs `store`.',
    }),
    previous_response_id: optionalString({
      maxLength: 200,
      description: 'The stored response that this one continues.',
    }),
    conversation: Type.Optional(
      Type.Unsafe<string | { readonly id: string } | null>({
        anyOf: [
          { type: ['string', 'null'], maxLength: 200 },
          {
            type: 'object',
            required: ['id'],
            properties: { id: { type: 'string', maxLength: 200 } },
            additionalProperties: false,
          },
        ],
        description: 'The conversation that the response continues and is added to.',
      }),
    ),
    prompt: unsupported(),
    reasoning: Type.Optional(Type.Unsafe<ReasoningField | null>(REASONING_OPTIONS)),
    max_tool_calls: optionalInteger({
      minimum: 1,
      description: 'Most calls of built-in tools, of which there are none.',
    }),
    prompt_cache_retention: ineffective({ type: ['string', 'null'] }),
  },
  { additionalProperties: false },
)

export type ResponsesBody = Static<typeof RESPONSES_BODY>
