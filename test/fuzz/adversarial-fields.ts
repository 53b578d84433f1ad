import { ADMIN_TOKEN } from '#test/integration/limits/hostile-target.ts'

/** A path below `/v1`, a JSON body, and additional headers. */
export type SizedRequest = readonly [
  path: string,
  body: object,
  headers?: Readonly<Record<string, string>>,
]

const list = <T>(size: number, of: (index: number) => T): T[] =>
  Array.from({ length: size }, (_, index) => of(index))
// More exceeds every limit, and takes seconds to write.
const MEMBERS_MAX = 150_000
const members = (size: number, of: (index: number) => unknown) =>
  Object.fromEntries(list(Math.min(size, MEMBERS_MAX), (index) => [`name_${index}`, of(index)]))
const nested = (depth: number) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`
const words = (characters: number) => 'Good morning, fox! '.repeat(Math.ceil(characters / 19))

const USER = { role: 'user', content: 'Hi' }
const chat = (fields: object): SizedRequest => [
  '/chat/completions',
  { model: 'chat', messages: [USER], max_tokens: 1, ...fields },
]
const said = (content: unknown) => chat({ messages: [{ role: 'user', content }] })
const format = (schema: object) =>
  chat({
    response_format: { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } },
  })
const custom = (syntax: string, definition: string) => ({
  type: 'custom',
  custom: { name: 'a', format: { type: 'grammar', grammar: { syntax, definition } } },
})
const tool = (parameters: object, index = 0) => ({
  type: 'function',
  function: { name: `tool_${index}`, parameters, strict: true },
})
const called = (texts: readonly string[]) =>
  chat({
    messages: [
      USER,
      {
        role: 'assistant',
        tool_calls: texts.map((text, at) => ({
          id: `call_${at}`,
          type: 'function',
          function: { name: 'tool_0', arguments: text },
        })),
      },
      ...texts.map((_, at) => ({ role: 'tool', tool_call_id: `call_${at}`, content: 'Done.' })),
    ],
    tools: [tool({ type: 'object', properties: {} })],
  })
const completion = (fields: object): SizedRequest => [
  '/completions',
  { model: 'chat', prompt: 'Hi', max_tokens: 1, ...fields },
]
const embedding = (input: unknown): SizedRequest => ['/embeddings', { model: 'embed', input }]
const response = (fields: object): SizedRequest => [
  '/responses',
  { model: 'chat', input: 'Hi', max_output_tokens: 16, ...fields },
]
const responseCalls = (text: string, output: unknown) =>
  response({
    input: [
      USER,
      { type: 'function_call', call_id: 'call_1', name: 'tool_0', arguments: text },
      { type: 'function_call_output', call_id: 'call_1', output },
    ],
  })
const anthropic = (fields: object): SizedRequest => [
  '/messages',
  { model: 'chat', messages: [USER], max_tokens: 1, ...fields },
]
const used = (input: object, content: unknown) =>
  anthropic({
    messages: [
      USER,
      { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'a', input }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content }] },
    ],
  })
const tuning = (fields: object): SizedRequest => [
  '/fine_tuning/jobs',
  { model: 'chat', training_file: 'file-x', ...fields },
]
// Addresses are resolved: the user server and the console are beside `/v1`.
const users = (path: string, fields: object): SizedRequest => [`/../${path}`, fields]
const consoleAction = (path: string, fields: object): SizedRequest => [
  `/../admin/api/${path}`,
  fields,
  { authorization: `Bearer ${ADMIN_TOKEN}` },
]
const account = (data: unknown) => ({ email: 'a@example.test', password: 'correct horse', data })
const text = { type: 'string' }

/** A request of a size for every field that accepts structure or text. */
export const FIELDS: Readonly<Record<string, (size: number) => SizedRequest>> = {
  messages: (size) => chat({ messages: list(size, () => USER) }),
  'content of words': (size) => said(words(size)),
  'content of one word': (size) => said('a'.repeat(size)),
  'content of spaces': (size) => said(' '.repeat(size)),
  'content of control tokens': (size) => said('<|im_end|>'.repeat(size / 10)),
  'content parts': (size) => said(list(size, () => ({ type: 'text', text: 'a' }))),
  name: (size) => chat({ messages: [{ ...USER, name: 'a'.repeat(size) }] }),
  tools: (size) => chat({ tools: list(size, (at) => tool({ type: 'object' }, at)) }),
  'tool properties': (size) =>
    chat({ tools: [tool({ type: 'object', properties: members(size, () => text) })] }),
  'grammar of a custom tool': (size) =>
    chat({ tools: [custom('lark', `start: ${'("a"|'.repeat(size / 5)}`)] }),
  'rules of a custom tool': (size) =>
    chat({ tools: [custom('lark', list(size / 10, (at) => `a${at}: "b"\n`).join(''))] }),
  'expression of a custom tool': (size) => chat({ tools: [custom('regex', '\\'.repeat(size))] }),
  'input of a custom tool': (size) =>
    chat({
      messages: [
        USER,
        {
          role: 'assistant',
          tool_calls: [
            { id: 'c', type: 'custom', custom: { name: 'a', input: '"\\\n'.repeat(size / 3) } },
          ],
        },
        { role: 'tool', tool_call_id: 'c', content: 'Done.' },
      ],
    }),
  'tool description': (size) =>
    chat({ tools: [{ type: 'function', function: { name: 'a', description: words(size) } }] }),
  'arguments of numbers': (size) => called([`[${'1,'.repeat(size)}1]`]),
  'arguments of members': (size) => called([JSON.stringify(members(size, () => 1))]),
  'arguments nested': (size) => called([nested(size / 5)]),
  'arguments of text': (size) => called([JSON.stringify({ a: words(size) })]),
  'arguments of many calls': (size) =>
    called(list(Math.min(size / 100, 60), () => `[${'1,'.repeat(size / 60)}1]`)),
  'schema enum': (size) => format({ enum: list(size, (at) => `value ${at}`) }),
  'schema enum of objects': (size) => format({ enum: list(size, (at) => ({ at })) }),
  'schema const': (size) => format({ const: 'a'.repeat(size), enum: list(1000, String) }),
  'schema required': (size) => format({ type: 'object', required: list(size, String) }),
  'schema properties': (size) => format({ type: 'object', properties: members(size, () => text) }),
  'schema oneOf': (size) =>
    format({ oneOf: list(size, (at) => ({ type: 'object', required: [`name_${at}`] })) }),
  'schema allOf': (size) =>
    format({ allOf: list(size, (at) => ({ properties: { [`name_${at}`]: text } })) }),
  'schema anyOf of references': (size) =>
    format({
      anyOf: list(size, (at) => ({ $ref: `#/$defs/name_${at}` })),
      $defs: members(size, (at) => ({ const: at })),
    }),
  'schema pattern': (size) => format({ type: 'string', pattern: '(a|b)?'.repeat(size / 6) }),
  'schema pattern of repeats': (size) =>
    format({ type: 'string', pattern: `^(a{0,${size}}b){0,${size}}$` }),
  'schema lengths': (size) => format({ type: 'string', minLength: size, maxLength: size * 2 }),
  'schema items': (size) =>
    format({ type: 'array', items: { enum: ['a', 1] }, minItems: size, maxItems: size }),
  stop: (size) => chat({ stop: list(size, (at) => `stop ${at}`) }),
  'stop of text': (size) => chat({ stop: 'a'.repeat(size) }),
  logit_bias: (size) => chat({ logit_bias: Object.fromEntries(list(size, (at) => [at, 1])) }),
  metadata: (size) => chat({ metadata: members(size, () => 'a'), store: false }),
  chat_template_kwargs: (size) => chat({ chat_template_kwargs: members(size, () => true) }),
  user: (size) => chat({ user: 'a'.repeat(size) }),
  prompt: (size) => completion({ prompt: words(size) }),
  'prompt of token ids': (size) => completion({ prompt: list(size, () => 5) }),
  prompts: (size) => completion({ prompt: list(size, () => 'a') }),
  suffix: (size) => completion({ suffix: words(size) }),
  guided_choice: (size) => completion({ guided_choice: list(size, (at) => `choice ${at}`) }),
  guided_regex: (size) => completion({ guided_regex: '(a|b)?'.repeat(size / 6) }),
  guided_json: (size) => completion({ guided_json: { enum: list(size, String) } }),
  guided_grammar: (size) => completion({ guided_grammar: `root ::= ${'"a" '.repeat(size / 4)}` }),
  'triggers of structural tags': (size) => {
    // As many pairs of a trigger and a tag as the values of all schemas allow.
    const texts = list(Math.min(size / 2, 29_000), (at) => `b${at}`)
    const content = { type: 'any_text' }
    const tags = list(Math.min(size / 8, 7000), () => ({ begin: 'a', content }))
    const format = { type: 'triggered_tags', triggers: [...texts, 'a'], tags }
    return chat({ response_format: { type: 'structural_tag', format } })
  },
  'texts that structural tags exclude': (size) => {
    const format = { type: 'any_text', excludes: [words(size)] }
    return chat({ response_format: { type: 'structural_tag', format } })
  },
  'labels in hypotheses': (size) => [
    '/classify',
    {
      model: 'embed',
      input: 'a',
      labels: list(Math.min(size / 10, 1000), () => 'a'.repeat(200)),
      hypothesis_template: '{}'.repeat(Math.min(size / 10, 500)),
    },
  ],
  // Beyond the parts that a request may have, but within a body.
  moderation: (size) => ['/moderations', { model: 'moderation', input: words(size * 4) }],
  'moderation of one word': (size) => [
    '/moderations',
    { model: 'moderation', input: 'a'.repeat(size) },
  ],
  allowed_token_ids: (size) => completion({ allowed_token_ids: list(size, (at) => at) }),
  edits: (size) => ['/edits', { model: 'chat', input: words(size), instruction: 'Repeat' }],
  documents: (size) => ['/engines/chat/search', { query: 'a', documents: list(size, () => 'a') }],
  query: (size) => ['/engines/chat/search', { query: words(size), documents: ['a'] }],
  'rerank documents': (size) => [
    '/rerank',
    { model: 'embed', query: 'a', documents: list(size, () => 'a') },
  ],
  tokenize: (size) => ['/tokenize', { model: 'chat', prompt: words(size) }],
  'tokenize messages': (size) => ['/tokenize', { model: 'chat', messages: list(size, () => USER) }],
  detokenize: (size) => ['/detokenize', { model: 'chat', tokens: list(size, () => 5) }],
  'conversation items': (size) => [
    '/conversations',
    { items: list(20, () => ({ ...USER, content: 'a'.repeat(size / 20) })) },
  ],
  'conversation metadata': (size) => ['/conversations', { metadata: members(size, () => 'a') }],
  'conversation arguments': (size) => [
    '/conversations',
    {
      items: [
        {
          type: 'function_call',
          call_id: 'call_1',
          name: 'a',
          arguments: JSON.stringify(members(size, () => 1)),
        },
      ],
    },
  ],
  'batch metadata': (size) => [
    '/batches',
    {
      input_file_id: 'file-x',
      endpoint: '/v1/embeddings',
      completion_window: '24h',
      metadata: members(size, () => 'a'),
    },
  ],
  'tuning metadata': (size) => tuning({ metadata: members(size, () => 'a') }),
  'tuning integrations': (size) =>
    tuning({ integrations: list(size, () => ({ type: 'wandb', wandb: { project: 'a' } })) }),
  'key models': (size) => ['/api_keys', { name: 'a', models: list(size, String) }],
  'organization name': (size) => ['/organizations', { name: words(size) }],
  'user metadata': (size) => users('signup', account(members(size, () => 'a'))),
  'user metadata of words': (size) => users('signup', account({ a: words(size) })),
  'user code': (size) =>
    users('verify', { type: 'email', email: 'a@example.test', token: '1'.repeat(size) }),
  'user password': (size) =>
    users('token?grant_type=password', { email: 'a@example.test', password: 'a'.repeat(size) }),
  'user passkey': (size) =>
    users('passkeys/authentication/verify', {
      challenge_id: 'a',
      credential: { id: 'a'.repeat(size), response: members(size, () => 1) },
    }),
  'console reason': (size) =>
    consoleAction('models/chat/disable', { reason: words(size), more: members(size, () => 1) }),
  'console key scopes': (size) =>
    consoleAction('keys', { organization_id: 'a', name: 'a', scopes: list(size, String) }),
  'conversation parts': (size) => [
    '/conversations',
    { items: [{ ...USER, content: list(size, () => ({ type: 'input_text', text: 'a' })) }] },
  ],
  'activity object': (size) => ['/activities', { type: 'Like', object: members(size, () => 'a') }],
  'webhook events': (size) => [
    '/webhook_endpoints',
    { url: 'https://example.test/', events: list(size, () => 'a') },
  ],
  inputs: (size) => embedding(list(size, () => 'a')),
  'input of words': (size) => embedding(words(size)),
  'input of one word': (size) => embedding('a'.repeat(size)),
  'input of token ids': (size) => embedding(list(size, () => 5)),
  'responses input': (size) => response({ input: list(size, () => USER) }),
  'responses instructions': (size) => response({ instructions: words(size) }),
  'responses text.format': (size) =>
    response({
      text: {
        format: {
          type: 'json_schema',
          name: 'a',
          strict: true,
          schema: { enum: list(size, String) },
        },
      },
    }),
  'responses arguments of members': (size) =>
    responseCalls(JSON.stringify(members(size, () => 1)), 'Done.'),
  'responses output of words': (size) => responseCalls('{}', words(size)),
  'responses output parts': (size) =>
    responseCalls(
      '{}',
      list(size, () => ({ type: 'input_text', text: 'a' })),
    ),
  'responses parsed arguments': (size) =>
    response({
      input: [
        USER,
        {
          type: 'function_call',
          call_id: 'call_1',
          name: 'tool_0',
          arguments: '{}',
          parsed_arguments: members(size, () => 1),
        },
        { type: 'function_call_output', call_id: 'call_1', output: 'Done.' },
      ],
    }),
  'responses tools': (size) =>
    response({
      tools: list(size, (at) => ({ type: 'function', name: `tool_${at}`, parameters: text })),
    }),
  'responses metadata': (size) => response({ metadata: members(size, () => 'a') }),
  'responses in the background': (size) => response({ input: words(size), background: true }),
  'messages system': (size) => anthropic({ system: words(size) }),
  'messages content': (size) =>
    anthropic({
      messages: [{ role: 'user', content: list(size, () => ({ type: 'text', text: 'a' })) }],
    }),
  'messages tools': (size) =>
    anthropic({
      tools: [
        { name: 'a', input_schema: { type: 'object', properties: members(size, () => text) } },
      ],
    }),
  'messages tool_use members': (size) =>
    used(
      members(size, () => 1),
      'Done.',
    ),
  'messages tool_use values': (size) => used({ list: list(size, () => 1) }, 'Done.'),
  'messages tool_result': (size) => used({}, words(size)),
  'messages tool_result blocks': (size) =>
    used(
      {},
      list(size, () => ({ type: 'text', text: 'a' })),
    ),
}
