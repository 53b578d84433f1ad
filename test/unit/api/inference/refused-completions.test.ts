import { itRefuses, type Refusal, USER } from './refusals.ts'

// Wording: the error tables of the API's 2024 dialect.
const REFUSALS: readonly Refusal[] = [
  [
    { prompt: { a: 1 } },
    'prompt',
    'invalid_type',
    "Invalid type for 'prompt': expected one of a string or an array, but got an object instead.",
  ],
  [{ prompt: [] }, 'prompt', 'empty_array', /./],
  [{ prompt: [1.5] }, 'prompt[0]', 'invalid_type', /./],
  [{ prompt: [-1] }, 'prompt[0]', 'integer_below_min_value', /./],
  [{ prompt: [[]] }, 'prompt[0]', 'empty_array', /./],
  [{ max_tokens: -2 }, 'max_tokens', 'integer_below_min_value', /./],
  [{ logprobs: 21 }, 'logprobs', 'integer_above_max_value', /Expected a value <= 20/],
  [{ best_of: 21 }, 'best_of', 'integer_above_max_value', /./],
  [
    { n: 2, best_of: 1 },
    'best_of',
    'invalid_value',
    /HINT: you must set 'n' \(currently 2\) to be at most 'best_of' \(currently 1\)/,
  ],
  [{ best_of: 3, stream: true }, 'best_of', 'invalid_value', /cannot be streamed/],
  [{ prompt: ['a', 'b'], n: 65 }, 'prompt', 'array_above_max_length', /at most 128/],
  [{ prompt: Array(2049).fill('a') }, 'prompt', 'array_above_max_length', /at most 128/],
  [{ suffix: ' end' }, 'suffix', 'unsupported_parameter', /cannot insert text/],
  [{ messages: [USER] }, 'messages', 'unknown_parameter', /./],
  [{ top_k: 'many' }, 'top_k', 'invalid_type', /./],
  [{ min_p: 2 }, 'min_p', 'decimal_above_max_value', /./],
  [
    { repetition_penalty: 0 },
    'repetition_penalty',
    'decimal_below_min_value',
    /Expected a value > 0, but got 0.0/,
  ],
  [{ 'a%b': 1 }, 'a%b', 'unknown_parameter', "Unknown parameter: 'a%b'."],
]

itRefuses('/v1/completions', { prompt: 'Hi' }, REFUSALS)
