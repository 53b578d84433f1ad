import { itRefuses, type Refusal } from './refusals.ts'

const TOOL = { type: 'function', name: 'add', parameters: { type: 'object' } }
const CUSTOM = { type: 'custom', name: 'shell' }
const CALL = { type: 'function_call', call_id: 'call_1', name: 'add', arguments: '{}' }
const OUTPUT = { type: 'function_call_output', call_id: 'call_1', output: '3' }
const USER = { role: 'user', content: 'Hi' }
const format = (fields: object) => ({ text: { format: fields } })

const INPUT: readonly Refusal[] = [
  [{ input: undefined }, 'input', 'missing_required_parameter', /./],
  [{ input: null }, 'input', 'invalid_type', /expected one of a string or an array/],
  [{ input: 7 }, 'input', 'invalid_type', /./],
  [{ input: [] }, 'input', 'empty_array', /./],
  [{ input: ['Hi'] }, 'input[0]', 'invalid_type', /expected an object/],
  [
    { input: [{ type: 'web_search', id: 'x' }] },
    'input[0].type',
    'invalid_value',
    /^Invalid value: 'web_search'\. Supported values are: 'message', 'function_call', .*'web_search_call'.*'item_reference'/,
  ],
  [
    { input: [USER, { type: 'item_reference', id: 'msg_1' }] },
    'input[1].id',
    'item_not_found',
    /^Item with id 'msg_1' not found\. Only items of stored responses/,
  ],
  [
    { input: [{ type: 'shell_call', call_id: 'call_1', action: {} }] },
    'input',
    null,
    'No tool output found for function call call_1.',
  ],
  [
    { input: [{ type: 'reasoning', summary: [] }] },
    'input',
    'invalid_value',
    /contains no message/,
  ],
  [{ input: [{ content: 'Hi' }] }, 'input[0].role', 'missing_required_parameter', /./],
  [{ input: [USER, { role: 'user' }] }, 'input[1].content', 'missing_required_parameter', /./],
  [{ input: [{ role: 'tool', content: 'x' }] }, 'input[0].role', 'invalid_value', /'developer'/],
  [{ input: [{ ...USER, name: 'x' }] }, 'input[0].name', 'unknown_parameter', /./],
  [{ input: [{ role: 'user', content: 7 }] }, 'input[0].content', 'invalid_type', /./],
  ...(['file', 'input_audio', 'text'] as const).map(
    (type): Refusal => [
      { input: [{ role: 'user', content: [{ type, image_url: 'x' }] }] },
      'input[0].content[0].type',
      'invalid_value',
      new RegExp(
        `'${type}'.*'input_text', 'output_text', 'refusal', 'input_image', and 'input_file'`,
      ),
    ],
  ),
  ...[
    { file_data: 'data:application/pdf;base64,JVBERi0=' },
    { file_data: 'data:text/plain;base64,/w==' },
    { file_data: 'data:text/plain,a' },
    { file_data: 'YQ==' },
    { file_id: 'file-1' },
    { file_url: 'https://example.com/a.txt' },
  ].map(
    (file): Refusal => [
      { input: [{ role: 'user', content: [{ type: 'input_file', ...file }] }] },
      'input[0].content[0].file_data',
      'invalid_value',
      /Expected a data URL of UTF-8 text.*the text of a PDF, or its pages as images/,
    ],
  ),
  [
    { input: [{ role: 'user', content: [{ type: 'input_text' }] }] },
    'input[0].content[0].text',
    'missing_required_parameter',
    /./,
  ],
  [
    { input: [{ type: 'function_call', name: 'add', arguments: '{}' }] },
    'input[0].call_id',
    'missing_required_parameter',
    /./,
  ],
  [
    { input: [CALL, { ...OUTPUT, output: [{ type: 'input_image' }] }] },
    'input[1].output[0].image_url',
    'missing_required_parameter',
    /./,
  ],
  [
    { input: [{ ...USER, id: 'm'.repeat(513) }] },
    'input[0].id',
    'string_above_max_length',
    /maximum length 512/,
  ],
  [
    { input: [{ type: 'custom_tool_call', call_id: 'call_1', name: 'shell' }] },
    'input[0].input',
    'missing_required_parameter',
    /./,
  ],
  [
    { input: [USER, { ...OUTPUT, type: 'custom_tool_call_output' }] },
    'input[1].call_id',
    null,
    /No tool call found/,
  ],
  [{ input: [USER, CALL] }, 'input', null, 'No tool output found for function call call_1.'],
  [{ input: [CALL, USER, OUTPUT] }, 'input', null, /No tool output found/],
  [
    { input: [USER, OUTPUT] },
    'input[1].call_id',
    null,
    'No tool call found for function call output with call_id call_1.',
  ],
  [{ input: [CALL, OUTPUT, OUTPUT] }, 'input[2].call_id', null, /No tool call found/],
]

const KEPT: readonly Refusal[] = [
  [{ moderation: { model: 'x' } }, 'moderation', 'unsupported_parameter', /./],
  ...[
    { background: true },
    { previous_response_id: 'resp_1' },
    { conversation: { id: 'conv_1' } },
  ].map(
    (fields): Refusal => [
      fields,
      ...(Object.keys(fields) as [string]),
      'unsupported_parameter',
      /is not supported here\. .* conversation as 'input'\.$/,
    ],
  ),
  ...Object.entries({
    prompt: { id: 'pmpt_1' },
  }).map(
    ([name, value]): Refusal => [
      { [name]: value },
      name,
      'unsupported_parameter',
      `Unsupported parameter: '${name}' is not supported by this endpoint.`,
    ],
  ),
  [{ include: ['web_search_call.all'] }, 'include[0]', 'invalid_value', /./],
  [{ messages: [USER] }, 'messages', 'unknown_parameter', "Unknown parameter: 'messages'."],
  [{ n: 2 }, 'n', 'unknown_parameter', /./],
  [{ max_output_tokens: 0 }, 'max_output_tokens', 'integer_below_min_value', /./],
  [{ temperature: 3 }, 'temperature', 'decimal_above_max_value', /./],
  [{ stream_options: {} }, 'stream_options', 'invalid_value', /only allowed when 'stream'/],
  [
    { stream: true, stream_options: { include_usage: false } },
    'stream_options.include_usage',
    'invalid_value',
    /./,
  ],
  [{ metadata: { a: 'x'.repeat(513) } }, 'metadata.a', 'string_above_max_length', /./],
]

const TOOLS: readonly Refusal[] = [
  ...[
    { type: 'web_search' },
    { type: 'file_search', vector_store_ids: ['vs_1'] },
    { type: 'mcp', server_label: 'x', server_url: 'https://example.com' },
    { type: 'code_interpreter', container: { type: 'auto' } },
  ].map(
    (tool): Refusal => [
      { tools: [TOOL, tool] },
      'tools[1].type',
      'invalid_value',
      `Invalid value: '${tool.type}'. Supported values are: 'function', 'custom', and 'namespace'. Built-in tools are not run here: offer a function of your own.`,
    ],
  ),
  [{ tools: [{ name: 'add' }] }, 'tools[0].type', 'missing_required_parameter', /./],
  // The form of chat completions.
  [
    { tools: [{ type: 'function', function: { name: 'add' } }] },
    'tools[0].name',
    'missing_required_parameter',
    /./,
  ],
  [{ tools: [{ ...TOOL, name: 'a b' }] }, 'tools[0].name', 'invalid_value', /./],
  // The form of chat completions.
  [
    { tools: [{ type: 'custom', custom: { name: 'shell' } }] },
    'tools[0].name',
    'missing_required_parameter',
    /./,
  ],
  [
    { tools: [{ ...CUSTOM, format: { type: 'grammar', syntax: 'regex' } }] },
    'tools[0].format.definition',
    'missing_required_parameter',
    /./,
  ],
  [{ tools: [TOOL, { ...CUSTOM, name: 'add' }] }, 'tools', 'invalid_value', /'add' is the name of/],
  [
    { tools: [TOOL, CUSTOM], tool_choice: { type: 'custom', name: 'add' } },
    'tool_choice',
    'invalid_value',
    /custom tool 'add' is not among/,
  ],
  [{ tools: Array(129).fill(TOOL) }, 'tools', 'array_above_max_length', /./],
  [
    { tools: [{ ...TOOL, strict: true }] },
    'tools[0].parameters',
    'invalid_json_schema',
    /additionalProperties/,
  ],
  [{ tool_choice: 'required' }, 'tool_choice', 'invalid_value', /'tools' are specified/],
  [{ tools: [TOOL], tool_choice: 'maybe' }, 'tool_choice', 'invalid_value', /'required'/],
  [
    { tools: [TOOL], tool_choice: { type: 'function', name: 'sub' } },
    'tool_choice',
    'invalid_value',
    /'sub' is not among/,
  ],
  [
    { tools: [TOOL], tool_choice: { type: 'web_search_preview' } },
    'tool_choice.type',
    'invalid_value',
    /'function', 'custom', and 'allowed_tools'/,
  ],
]

const FORMATS: readonly Refusal[] = [
  [format({ type: 'yaml' }), 'text.format.type', 'invalid_value', /'json_schema'/],
  [format({ type: 'json_object' }), 'input', null, /must contain the word 'json'/],
  [
    format({ type: 'json_schema', name: 'x' }),
    'text.format.schema',
    'missing_required_parameter',
    /./,
  ],
  [
    format({ type: 'json_schema', name: 'x y', schema: {} }),
    'text.format.name',
    'invalid_value',
    /does not match pattern/,
  ],
  [
    format({ type: 'json_schema', name: 'x', strict: true, schema: { type: 'object' } }),
    'text.format.schema',
    'invalid_json_schema',
    /additionalProperties/,
  ],
]

itRefuses('/v1/responses', { input: 'Hi' }, [...INPUT, ...KEPT, ...TOOLS, ...FORMATS])
