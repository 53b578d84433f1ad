import { itRefuses, USER, type Refusal } from './refusals.ts'

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
    { stop: ['a', 'b', 'c', 'd', 'e'] },
    'stop',
    'array_above_max_length',
    "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead.",
  ],
  [{ stop: [1] }, 'stop[0]', 'invalid_type', /expected a string, but got an integer/],
  [
    { user: 'x'.repeat(65) },
    'user',
    'string_above_max_length',
    "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 65 instead.",
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
  [{ prompt: 'x' }, 'prompt', 'unknown_parameter', "Unknown parameter: 'prompt'."],
  [{ best_of: 2 }, 'best_of', 'unknown_parameter', /./],
]

itRefuses('/v1/chat/completions', { messages: [USER] }, REFUSALS)
