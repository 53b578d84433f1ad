import type { Static } from 'typebox'

import { CACHE_CONTROL, LONG_FUNCTION_NAME, TOOLS_MAX } from '#api/inference/chat/chat-tools.ts'
import {
  ineffective,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalList,
  optionalObject,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { EFFORT } from '#api/inference/reasoning-fields.ts'
import { SAMPLING_FIELDS, STOP_STRINGS_MAX } from '#api/inference/sampling-fields.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable, ofType } from '#shared/schemas.ts'

import { MESSAGES, SYSTEM } from './messages-input.ts'

const PARALLEL = { disable_parallel_tool_use: optionalBoolean() }

const TOOL = Type.Object(
  {
    type: optionalString({
      maxLength: 64,
      description:
        'Absent or `custom` for a tool of your own; `bash_…`, `text_editor_…` and `memory_…` with a date have a known schema. Tools that run on the server are not offered.',
    }),
    name: LONG_FUNCTION_NAME,
    description: optionalString(),
    input_schema: optionalObject({ description: 'A JSON Schema, for a tool of your own.' }),
    strict: optionalBoolean(),
    cache_control: CACHE_CONTROL,
    input_examples: optionalList(),
    eager_input_streaming: optionalBoolean(),
    defer_loading: optionalBoolean(),
    allowed_callers: optionalList(),
  },
  { additionalProperties: false },
)
/** A function that the model may call. */
export type ToolField = Static<typeof TOOL>

const TOOL_CHOICE = variantSchema(
  {
    auto: PARALLEL,
    any: PARALLEL,
    tool: { name: Type.String(), ...PARALLEL },
    none: {},
  },
  { description: 'Controls tool calls: none, any, or one named tool.' },
)
/** Whether and which tool is called. */
export type ToolChoiceField = Static<typeof TOOL_CHOICE>

const THINKING = Type.Object(
  {
    type: choice(['enabled', 'disabled', 'adaptive']),
    budget_tokens: optionalInteger({
      minimum: 0,
      description: 'The maximum number of reasoning tokens.',
    }),
    display: optionalString(),
  },
  {
    additionalProperties: false,
    description:
      'If enabled, the text that the model writes between `<think>` and `</think>` becomes a thinking block.',
  },
)

const OUTPUT_FORMAT = Type.Object(
  { type: choice(['json_schema']), schema: ofType(['object']) },
  { additionalProperties: false },
)

const PROMPT_FIELDS = {
  model: Type.String({ minLength: 1, description: 'The id of a model.' }),
  messages: MESSAGES,
  system: Type.Optional(SYSTEM),
  tools: Type.Optional(
    nullable(
      Type.Array(TOOL, {
        maxItems: TOOLS_MAX,
        description: 'Functions that the model may call.',
      }),
    ),
  ),
  tool_choice: Type.Optional(nullable(TOOL_CHOICE)),
  thinking: Type.Optional(nullable(THINKING)),
  cache_control: CACHE_CONTROL,
  output_config: Type.Optional(
    nullable(
      Type.Object(
        { effort: EFFORT, format: Type.Optional(nullable(OUTPUT_FORMAT)) },
        {
          additionalProperties: false,
          description:
            'Options of the output; `format` has the JSON Schema that the answer must match.',
        },
      ),
    ),
  ),
}

/** The body of `POST /v1/messages`. */
export const MESSAGES_BODY = Type.Object(
  {
    ...PROMPT_FIELDS,
    max_tokens: Type.Integer({
      minimum: 1,
      description:
        'The maximum length of the answer in tokens; reduced to fit into the context window.',
    }),
    temperature: SAMPLING_FIELDS.temperature,
    top_p: SAMPLING_FIELDS.top_p,
    top_k: SAMPLING_FIELDS.top_k,
    stop_sequences: Type.Optional(
      nullable(
        Type.Array(Type.String({ minLength: 1, maxLength: 1024 }), {
          maxItems: STOP_STRINGS_MAX,
          description: 'Strings that end generation; they are not part of the answer.',
        }),
      ),
    ),
    stream: SAMPLING_FIELDS.stream,
    metadata: Type.Optional(
      nullable(
        Type.Object(
          { user_id: optionalString({ maxLength: 512 }) },
          { additionalProperties: false },
        ),
      ),
    ),
    output_format: Type.Optional(
      nullable({ ...OUTPUT_FORMAT, description: 'Older name of `output_config.format`.' }),
    ),
    service_tier: optionalEnum(['auto', 'standard_only']),
    inference_geo: ineffective({ type: ['string', 'null'] }),
    speed: ineffective({ type: ['string', 'null'] }, ['standard']),
    container: ineffective({ type: ['string', 'object', 'null'] }),
    context_management: ineffective({ type: ['object', 'null'] }),
    mcp_servers: optionalList({ description: 'Must be empty; anything else is refused.' }),
    compaction: optionalObject({
      description: 'Not supported: ask for a summary in a message instead.',
    }),
    thread: optionalObject({ description: 'Not supported: send the whole conversation instead.' }),
  },
  { additionalProperties: false },
)

/** The body of `POST /v1/messages/count_tokens`. */
export const COUNT_BODY = Type.Object(PROMPT_FIELDS, { additionalProperties: false })

export type MessagesBody = Static<typeof MESSAGES_BODY>
export type CountBody = Static<typeof COUNT_BODY>
