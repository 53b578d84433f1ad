import { itRefuses, type Refusal, USER } from './refusals.ts'

const JSON_OF_NULL = {
  type: 'json_schema',
  json_schema: { name: 'x', schema: { type: 'null' } },
}
const BEGUN = {
  continue_final_message: true,
  messages: [USER, { role: 'assistant', content: 'The' }],
}

// Wording: the error tables of the API's 2024 dialect.
const REFUSALS: readonly Refusal[] = [
  [
    { model: undefined },
    'model',
    'missing_required_parameter',
    "Missing required parameter: 'model'.",
  ],
  [
    { temperature: 'hot' },
    'temperature',
    'invalid_type',
    "Invalid type for 'temperature': expected a decimal, but got a string instead.",
  ],
  [
    { temperature: 2.1 },
    'temperature',
    'decimal_above_max_value',
    "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 2.1 instead.",
  ],
  [
    { temperature: 99 },
    'temperature',
    'decimal_above_max_value',
    "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 99.0 instead.",
  ],
  [
    { top_p: -0.5 },
    'top_p',
    'decimal_below_min_value',
    "Invalid 'top_p': decimal below minimum value. Expected a value >= 0, but got -0.5 instead.",
  ],
  [
    { n: 129 },
    'n',
    'integer_above_max_value',
    "Invalid 'n': integer above maximum value. Expected a value <= 128, but got 129 instead.",
  ],
  [{ n: 0 }, 'n', 'integer_below_min_value', /Expected a value >= 1, but got 0 instead/],
  [
    { n: 1.5 },
    'n',
    'invalid_type',
    "Invalid type for 'n': expected an integer, but got a decimal instead.",
  ],
  [{ max_tokens: 0 }, 'max_tokens', 'integer_below_min_value', /./],
  [
    { stop: Array(65).fill('a') },
    'stop',
    'array_above_max_length',
    "Invalid 'stop': array too long. Expected an array with maximum length 64, but got an array with length 65 instead.",
  ],
  [{ stop: [1] }, 'stop[0]', 'invalid_type', /expected a string, but got an integer/],
  [
    { user: 'x'.repeat(513) },
    'user',
    'string_above_max_length',
    "Invalid 'user': string too long. Expected a string with maximum length 512, but got a string with length 513 instead.",
  ],
  [{ frequency_penalty: 3 }, 'frequency_penalty', 'decimal_above_max_value', /./],
  [{ logit_bias: { '50256': 101 } }, 'logit_bias.50256', 'decimal_above_max_value', /./],
  [
    { logit_bias: { foo: 1 } },
    'logit_bias',
    'invalid_value',
    "Invalid key in 'logit_bias': 'foo' is not allowed here.",
  ],
  [{ top_logprobs: 2 }, 'top_logprobs', 'invalid_value', /only allowed when 'logprobs'/],
  [{ logprobs: true, top_logprobs: 21 }, 'top_logprobs', 'integer_above_max_value', /./],
  [
    { stream_options: { include_usage: true } },
    'stream_options',
    'invalid_value',
    /only allowed when 'stream'/,
  ],
  [{ stream: true, stream_options: { foo: 1 } }, 'stream_options.foo', 'unknown_parameter', /./],
  [{ stop_token_ids: [-1] }, 'stop_token_ids[0]', 'integer_below_min_value', /./],
  [{ skip_special_tokens: false }, 'skip_special_tokens', 'invalid_value', /./],
  [
    { min_tokens: 9, max_tokens: 8 },
    'min_tokens',
    'invalid_value',
    "Invalid value for 'min_tokens': 9 is greater than the longest answer, which has 8 tokens.",
  ],
  [
    { ignore_eos: true, response_format: JSON_OF_NULL },
    'ignore_eos',
    'invalid_value',
    /the answer ends when the form is complete/,
  ],
  [{ min_tokens: 2, response_format: JSON_OF_NULL }, 'min_tokens', 'invalid_value', /./],
  [
    { continue_final_message: true },
    'continue_final_message',
    'invalid_value',
    /needs a last message with role 'assistant'/,
  ],
  [
    { ...BEGUN, add_generation_prompt: true },
    'continue_final_message',
    'invalid_value',
    /cannot be true together with 'add_generation_prompt'/,
  ],
  [{ chat_template_kwargs: { a: [] } }, 'chat_template_kwargs.a', 'invalid_type', /./],
  [{ chat_template_kwargs: { 'a b': 1 } }, 'chat_template_kwargs', 'invalid_value', /'a b'/],
  [{ prompt: 'x' }, 'prompt', 'unknown_parameter', "Unknown parameter: 'prompt'."],
  [{ best_of: 2 }, 'best_of', 'unknown_parameter', /./],
  [{ moderation: { model: 'x' } }, 'moderation', 'unsupported_parameter', /./],
]

itRefuses('/v1/chat/completions', { messages: [USER] }, REFUSALS)
