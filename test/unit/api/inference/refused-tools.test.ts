import { itRefuses, type Refusal, USER } from './refusals.ts'

const custom = (fields: object = {}) => ({ type: 'custom', custom: { name: 'shell', ...fields } })
const grammar = (fields: object) => custom({ format: { type: 'grammar', grammar: fields } })
const TOOL = { type: 'function', function: { name: 'add', parameters: { type: 'object' } } }

// Wording: the error tables of the API's 2024 dialect.
const REFUSALS: readonly Refusal[] = [
  [{ response_format: { type: 'yaml' } }, 'response_format.type', 'invalid_value', /./],
  [{ response_format: { type: 'json_object' } }, 'messages', null, /must contain the word 'json'/],
  [
    { response_format: { type: 'json_object', schema: {} } },
    'messages',
    null,
    /must contain the word 'json'/,
  ],
  [
    { response_format: { type: 'text', schema: { type: 'object' } } },
    'response_format.schema',
    'invalid_value',
    /only allowed with 'response_format' of type 'json_object'/,
  ],
  [
    { messages: [{ role: 'user', content: null, refusal: 'No.' }] },
    'messages[0].content',
    'invalid_value',
    /expected a string, got null/,
  ],
  [
    { response_format: { type: 'json_schema' } },
    'response_format.json_schema',
    'missing_required_parameter',
    /./,
  ],
  [
    { response_format: { type: 'json_schema', json_schema: { name: 'x y', schema: {} } } },
    'response_format.json_schema.name',
    'invalid_value',
    /does not match pattern/,
  ],
  [
    {
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'x', strict: true, schema: { type: 'object' } },
      },
    },
    'response_format.json_schema.schema',
    'invalid_json_schema',
    /additionalProperties/,
  ],
  [{ tools: [{ type: 'function' }] }, 'tools[0].function', 'missing_required_parameter', /./],
  [{ tools: [{ function: {} }] }, 'tools[0].type', 'missing_required_parameter', /./],
  [
    { tools: [{ type: 'web_search', user_location: null }] },
    'tools[0].type',
    'invalid_value',
    "Invalid value: 'web_search'. Supported values are: 'function' and 'custom'.",
  ],
  [{ tools: [{ ...TOOL, type: 'retrieval' }] }, 'tools[0].type', 'invalid_value', /./],
  [
    { tools: [{ type: 'function', function: { name: 'a', parameters: { type: 'string' } } }] },
    'tools[0].function.parameters',
    'invalid_function_parameters',
    /must be a JSON Schema of 'type: "object"', got 'type: "string"'\.$/,
  ],
  [
    { tools: [{ type: 'function', function: { name: 'a b' } }] },
    'tools[0].function.name',
    'invalid_value',
    /./,
  ],
  [
    { tool_choice: 'required' },
    'tool_choice',
    'invalid_value',
    /only allowed when 'tools' are specified/,
  ],
  [
    { tools: [TOOL], tool_choice: 'maybe' },
    'tool_choice',
    'invalid_value',
    "Invalid value: 'maybe'. Supported values are: 'none', 'auto', 'required', and 'any'.",
  ],
  [
    { tools: [TOOL], tool_choice: { type: 'function', function: { name: 'sub' } } },
    'tool_choice',
    'invalid_value',
    /'sub' is not among/,
  ],
  [
    { tools: [TOOL], tool_choice: { type: 'function' } },
    'tool_choice.function',
    'missing_required_parameter',
    /./,
  ],
  [
    { tools: [TOOL], tool_choice: { type: 'allowed_tools' } },
    'tool_choice.allowed_tools',
    'missing_required_parameter',
    /./,
  ],
  [{ tools: [{ type: 'custom' }] }, 'tools[0].custom', 'missing_required_parameter', /./],
  [{ tools: [{ ...TOOL, ...custom() }] }, 'tools[0].function', 'unknown_parameter', /./],
  [{ tools: [custom({ parameters: {} })] }, 'tools[0].custom.parameters', 'unknown_parameter', /./],
  [
    { tools: [custom({ format: { type: 'json' } })] },
    'tools[0].custom.format.type',
    'invalid_value',
    /'text' and 'grammar'/,
  ],
  [
    { tools: [grammar({ syntax: 'gbnf', definition: 'x' })] },
    'tools[0].custom.format.grammar.syntax',
    'invalid_value',
    /'lark' and 'regex'/,
  ],
  [
    { tools: [grammar({ syntax: 'regex', definition: 'x'.repeat(4091) })] },
    'tools[0].custom.format.grammar.definition',
    'invalid_value',
    /at most 4090 characters/,
  ],
  [{ tools: [TOOL, custom({ name: 'add' })] }, 'tools', 'invalid_value', /'add' is the name of/],
  [
    { tools: [TOOL, custom()], tool_choice: { type: 'custom', custom: { name: 'add' } } },
    'tool_choice',
    'invalid_value',
    /custom tool 'add' is not among/,
  ],
  [
    { tools: [TOOL, custom()], tool_choice: { type: 'function', function: { name: 'shell' } } },
    'tool_choice',
    'invalid_value',
    /function 'shell' is not among/,
  ],
  [{ tools: Array(129).fill(TOOL) }, 'tools', 'array_above_max_length', /./],
  [{ metadata: { a: 'x'.repeat(513) } }, 'metadata.a', 'string_above_max_length', /./],
  [
    { metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, ''])) },
    'metadata',
    'object_above_max_properties',
    /./,
  ],
  [{ modalities: ['audio'] }, 'modalities[0]', 'invalid_value', /./],
  [{ store: true }, 'store', 'unsupported_value', /does not support true here/],
]

itRefuses('/v1/chat/completions', { messages: [USER] }, REFUSALS)
