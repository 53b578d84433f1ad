import type { Static } from 'typebox'

import { REQUEST_FIELDS, TOP_LOGPROBS_MAX } from '#api/inference/chat/chat-request.ts'
import { FUNCTION_NAME, LONG_FUNCTION_NAME, TOOLS_MAX } from '#api/inference/chat/chat-tools.ts'
import { GRAMMAR_FIELDS } from '#api/inference/chat/custom-tools.ts'
import {
  answerLength,
  fixed,
  ineffective,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalObject,
  optionalString,
  unsupported,
} from '#api/inference/field-schemas.ts'
import { EFFORT, VERBOSITY } from '#api/inference/reasoning-fields.ts'
import { FOREIGN_FIELDS, SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable, ofType } from '#shared/schemas.ts'

import { INPUT, INPUT_ITEMS } from './responses-input.ts'

const CLOSED = { additionalProperties: false }
const CONVERSATION_ID = Type.String({ maxLength: 200 })

/** The value of `include` that requests log-probabilities. */
export const LOGPROBS = 'message.output_text.logprobs'
// Agents send it with every request. Reasoning is never encrypted here, so the value has no effect.
const REASONING = 'reasoning.encrypted_content'
/** Values of `include` about built-in tools, and about images that the client has. */
export const INCLUDED_OF_TOOLS: readonly string[] = [
  'file_search_call.results',
  'web_search_call.results',
  'web_search_call.action.sources',
  'message.input_image.image_url',
  'computer_call_output.output.image_url',
  'code_interpreter_call.outputs',
]

const SUMMARY = ineffective({
  type: ['string', 'null'],
  enum: ['auto', 'concise', 'detailed', null],
})
const REASONING_OPTIONS = Type.Object(
  { effort: EFFORT, summary: SUMMARY, generate_summary: SUMMARY },
  {
    ...CLOSED,
    description: 'How much the model reasons; no summary of the reasoning is returned.',
  },
)

const NAME = { name: Type.String() }
const NAMED_TOOLS = { function: NAME, custom: NAME }
const NAMED_TOOL = variantSchema(NAMED_TOOLS)
/** A tool that a choice names. */
export type NamedTool = Static<typeof NAMED_TOOL>

const CALLED = {
  function: {
    name: LONG_FUNCTION_NAME,
    description: optionalString(),
    parameters: optionalObject({ description: 'A JSON Schema.' }),
    strict: optionalBoolean(),
  },
  custom: {
    name: LONG_FUNCTION_NAME,
    description: optionalString(),
    format: Type.Optional(
      nullable(
        variantSchema(
          { text: {}, grammar: GRAMMAR_FIELDS },
          { description: 'The format of the input: any text, or text that follows a grammar.' },
        ),
      ),
    ),
  },
}
const CALLED_TOOL = variantSchema(CALLED)
/** A tool that the model may call. */
export type CalledTool = Static<typeof CALLED_TOOL>

const TOOL = variantSchema(
  {
    ...CALLED,
    namespace: {
      name: LONG_FUNCTION_NAME,
      description: optionalString(),
      tools: Type.Array(CALLED_TOOL, { minItems: 1, maxItems: TOOLS_MAX }),
    },
  },
  { instead: 'Built-in tools are not run here: offer a function of your own.' },
)
/** A tool that the model may call, or a group of them. */
export type ToolField = Static<typeof TOOL>

const TOOL_CHOICE = Type.Union(
  [
    nullable(choice(['none', 'auto', 'required'])),
    variantSchema({
      ...NAMED_TOOLS,
      allowed_tools: {
        mode: choice(['auto', 'required']),
        tools: Type.Array(NAMED_TOOL, { maxItems: TOOLS_MAX }),
      },
    }),
  ],
  { description: 'Controls tool calls: none, auto, required, or the name of one tool.' },
)
/** Whether and which tool is to be called. */
export type ToolChoiceField = NonNullable<Static<typeof TOOL_CHOICE>>

const TEXT = Type.Object(
  {
    format: Type.Optional(
      nullable(
        variantSchema(
          {
            text: {},
            json_object: {},
            json_schema: {
              name: FUNCTION_NAME,
              schema: ofType(['object']),
              description: optionalString(),
              strict: optionalBoolean(),
            },
          },
          {
            description:
              'The response format: text, any JSON object, or JSON that matches a schema.',
          },
        ),
      ),
    ),
    verbosity: VERBOSITY,
  },
  CLOSED,
)

const STREAM_OPTIONS = Type.Object(
  {
    include_obfuscation: optionalBoolean({
      description: 'Pad deltas with random characters, so that their sizes reveal nothing.',
    }),
    // The last event always has the usage.
    include_usage: fixed([true]),
  },
  { ...CLOSED, description: 'Only with `stream`.' },
)

const { description = '' } = INPUT as { readonly description?: string }
/** The field `input` where it may be left out. */
export const OPTIONAL_INPUT = Type.Optional(
  Type.Union([nullable(Type.String()), INPUT_ITEMS], { description }),
)

/** The body of `POST /v1/responses`. */
export const RESPONSES_BODY = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'The id of a model.' }),
    input: INPUT,
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
    stream_options: Type.Optional(nullable(STREAM_OPTIONS)),
    tools: Type.Optional(
      nullable(
        Type.Array(TOOL, {
          maxItems: TOOLS_MAX,
          description:
            'Functions and custom tools that the model may call; a namespace is a group of them.',
        }),
      ),
    ),
    tool_choice: Type.Optional(TOOL_CHOICE),
    parallel_tool_calls: optionalBoolean({
      default: true,
      description: 'If false, the model makes one call at most.',
    }),
    text: Type.Optional(nullable(TEXT)),
    include: Type.Optional(
      nullable(
        Type.Array(choice([LOGPROBS, REASONING, ...INCLUDED_OF_TOOLS]), {
          maxItems: 16,
          description:
            'Additional output data: the log-probabilities of the tokens. Other values are ignored.',
        }),
      ),
    ),
    top_logprobs: optionalInteger({
      minimum: 0,
      maximum: TOP_LOGPROBS_MAX,
      description:
        'The number of alternatives per token; only if `include` asks for log-probabilities.',
    }),
    ...REQUEST_FIELDS,
    user: SAMPLING_FIELDS.user,
    timeout: SAMPLING_FIELDS.timeout,
    ...FOREIGN_FIELDS,
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
      description: 'Answer at once and run the response as a background job; requires `store`.',
    }),
    previous_response_id: optionalString({
      maxLength: 200,
      description: 'The id of the stored response that this one continues.',
    }),
    conversation: Type.Optional(
      Type.Union([nullable(CONVERSATION_ID), Type.Object({ id: CONVERSATION_ID }, CLOSED)], {
        description: 'The conversation that the response continues; the response is added to it.',
      }),
    ),
    prompt: unsupported(),
    moderation: unsupported(),
    reasoning: Type.Optional(nullable(REASONING_OPTIONS)),
    max_tool_calls: ineffective({
      type: ['integer', 'null'],
      minimum: 0,
      description:
        'The maximum number of calls of built-in tools; ignored and reported, because there are no built-in tools.',
    }),
    prompt_cache_options: ineffective({ type: ['object', 'null'] }),
    prompt_cache_retention: ineffective({ type: ['string', 'null'] }),
  },
  { additionalProperties: false },
)

export type ResponsesBody = Static<typeof RESPONSES_BODY>
