import { itRefuses, type Refusal, USER } from './refusals.ts'

const CALL = { id: 'call_1', type: 'function', function: { name: 'add', arguments: '{}' } }
const ASKS_TWICE = { role: 'assistant', tool_calls: [CALL, { ...CALL, id: 'call_2' }] }

// Wording: the error tables of the API's 2024 dialect.
const REFUSALS: readonly Refusal[] = [
  [
    { messages: undefined },
    'messages',
    'missing_required_parameter',
    "Missing required parameter: 'messages'.",
  ],
  [
    { messages: [] },
    'messages',
    'empty_array',
    "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
  ],
  [
    { messages: Array(2049).fill({ role: 'user', content: 'Hi' }) },
    'messages',
    'array_above_max_length',
    "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2049 instead.",
  ],
  [
    { messages: 'Hi' },
    'messages',
    'invalid_type',
    "Invalid type for 'messages': expected an array, but got a string instead.",
  ],
  [
    { messages: [{ role: 'wizard', content: 'x' }] },
    'messages[0].role',
    'invalid_value',
    "Invalid value: 'wizard'. Supported values are: 'developer', 'system', 'user', 'assistant', 'tool', and 'function'.",
  ],
  [{ messages: [{ content: 'x' }] }, 'messages[0].role', 'missing_required_parameter', /./],
  [
    { messages: [USER, { role: 'function', name: '', content: 'x' }] },
    'messages[1].name',
    'missing_required_parameter',
    /./,
  ],
  [{ messages: [{ role: 'user' }] }, 'messages[0].content', 'missing_required_parameter', /./],
  [
    { messages: [{ role: 'user', content: null }] },
    'messages[0].content',
    'invalid_value',
    /got null/,
  ],
  [
    { messages: [{ role: 'user', content: 5 }] },
    'messages[0].content',
    'invalid_type',
    "Invalid type for 'messages[0].content': expected one of a string or an array, but got an integer instead.",
  ],
  [
    { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
    'messages[0].content[0].image_url',
    'unsupported_value',
    /Images are only supported by certain models/,
  ],
  [
    { messages: [{ role: 'user', content: [{ type: 'input_audio' }] }] },
    'messages[0].content[0].type',
    'invalid_value',
    /'input_audio'/,
  ],
  [
    { messages: [{ role: 'user', content: [{ type: 'file' }] }] },
    'messages[0].content[0].file',
    'missing_required_parameter',
    /./,
  ],
  ...[{ file_id: 'file-1' }, { file_data: 'data:application/pdf;base64,JVBERi0=' }].map(
    (file): Refusal => [
      { messages: [{ role: 'user', content: [{ type: 'file', file }] }] },
      'messages[0].content[0].file.file_data',
      'invalid_value',
      /Expected a data URL of UTF-8 text/,
    ],
  ),
  [
    { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] },
    'messages[0].content[0].image_url',
    'missing_required_parameter',
    /./,
  ],
  [
    {
      messages: [
        { role: 'system', content: [{ type: 'image_url', image_url: { url: 'x' } }] },
        { role: 'user', content: 'Hi' },
      ],
    },
    'messages[0].content[0].type',
    'invalid_value',
    /only allowed with the roles 'user' and 'tool'/,
  ],
  [
    { messages: [{ role: 'user', content: [{ type: 'text' }] }] },
    'messages[0].content[0].text',
    'missing_required_parameter',
    /./,
  ],
  [
    { messages: [{ ...USER, colour: 1 }] },
    'messages[0].colour',
    'unknown_parameter',
    "Unknown parameter: 'messages[0].colour'.",
  ],
  [
    { messages: [USER, { role: 'tool', content: '3', tool_call_id: 'call_1' }] },
    'messages[1].role',
    null,
    /must be a response to a preceeding message/,
  ],
  [
    { messages: [USER, { role: 'assistant', tool_calls: [CALL] }, USER] },
    'messages[1].tool_calls',
    null,
    /did not have response messages: call_1$/,
  ],
  [
    { messages: [USER, ASKS_TWICE, { role: 'tool', content: '3', tool_call_id: 'call_2' }, USER] },
    'messages[1].tool_calls',
    null,
    /did not have response messages: call_1$/,
  ],
  [
    { messages: [USER, ASKS_TWICE, { role: 'tool', content: '3', tool_call_id: 'call_1' }] },
    'messages[1].tool_calls',
    null,
    /did not have response messages: call_2$/,
  ],
  [
    { messages: [USER, { role: 'assistant', tool_calls: [CALL] }, { role: 'tool', content: 'x' }] },
    'messages[2].tool_call_id',
    'missing_required_parameter',
    /./,
  ],
  [
    { messages: [{ ...USER, tool_calls: [CALL] }] },
    'messages[0].tool_calls',
    'invalid_value',
    /only messages with role 'assistant'/,
  ],
]

itRefuses('/v1/chat/completions', { messages: [USER] }, REFUSALS)
