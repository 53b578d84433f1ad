import { afterAll, beforeAll, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

let surface: Awaited<ReturnType<typeof openSurface>>
beforeAll(async () => {
  surface = await openSurface()
})
afterAll(() => surface.app.close())

async function shown(...input: object[]) {
  const asked = { model: 'gpt-3.5-turbo', input: [...input, { role: 'user', content: 'Why?' }] }
  const response = await surface.post('/v1/responses', asked)
  expect([response.statusCode, response.body]).toEqual([200, expect.stringContaining('"resp_')])
  const [prompt] = surface.submitter.input.prompts
  if (prompt?.form !== 'chat') throw new Error('no chat was asked for')
  const messages = prompt.messages.slice(0, -1)
  return { messages, ignored: response.headers['x-millrace-ignored-parameters'] }
}

/** The messages of one call and its output. */
const called = (id: string, name: string, args: object, content: string) => [
  {
    role: 'assistant',
    content: '',
    toolCalls: [{ id, name, arguments: JSON.stringify(args) }],
  },
  { role: 'tool', content, toolCallId: id },
]

const SEARCH = { type: 'search', query: 'tea', sources: [{ type: 'url', url: 'https://a.test' }] }
const HITS = [{ file_id: 'file-1', filename: 'a.txt', score: 0.5, text: 'Tea.' }]
const LOGS = [{ type: 'logs', logs: '4' }]
const PATCH = { type: 'delete_file', path: 'a.txt' }
const SHELL_OUTPUT = [{ stdout: 'a', stderr: '', outcome: { type: 'exit', exit_code: 0 } }]

it.each([
  [
    'a search of the web',
    [{ type: 'web_search_call', id: 'ws_1', status: 'completed', action: SEARCH }],
    called('ws_1', 'web_search', SEARCH, ''),
  ],
  [
    'a search of files',
    [{ type: 'file_search_call', id: 'fs_1', status: 'searching', queries: ['a'], results: HITS }],
    called('fs_1', 'file_search', { queries: ['a'] }, JSON.stringify(HITS)),
  ],
  [
    'a run of code',
    [{ type: 'code_interpreter_call', id: 'ci_1', code: '2+2', container_id: 'c', outputs: LOGS }],
    called('ci_1', 'code_interpreter', { code: '2+2' }, JSON.stringify(LOGS)),
  ],
  [
    'a call of an MCP server',
    [{ type: 'mcp_call', id: 'm_1', server_label: 's', name: 'a', arguments: '{}', output: 'b' }],
    called('m_1', 'a', {}, 'b'),
  ],
  [
    'a failed call of an MCP server',
    [{ type: 'mcp_call', id: 'm_1', server_label: 's', name: 'a', arguments: '{}', error: 'no' }],
    called('m_1', 'a', {}, 'no'),
  ],
  [
    'a local shell',
    [
      { type: 'local_shell_call', id: 'l', call_id: 'call_1', action: { command: ['ls'] } },
      { type: 'local_shell_call_output', id: 'call_1', output: 'a' },
    ],
    called('call_1', 'local_shell', { command: ['ls'] }, 'a'),
  ],
  [
    'a shell',
    [
      { type: 'shell_call', call_id: 'call_1', action: { commands: ['ls'] } },
      { type: 'shell_call_output', call_id: 'call_1', output: SHELL_OUTPUT },
    ],
    called('call_1', 'shell', { commands: ['ls'] }, JSON.stringify(SHELL_OUTPUT)),
  ],
  [
    'a patch',
    [
      { type: 'apply_patch_call', call_id: 'call_1', status: 'completed', operation: PATCH },
      { type: 'apply_patch_call_output', call_id: 'call_1', status: 'failed' },
    ],
    called('call_1', 'apply_patch', PATCH, 'failed'),
  ],
  [
    'a program that calls tools',
    [
      { type: 'program', id: 'p', call_id: 'call_1', code: 'run()', fingerprint: 'f' },
      { type: 'program_output', id: 'o', call_id: 'call_1', result: '4', status: 'completed' },
    ],
    called('call_1', 'program', { code: 'run()' }, '4'),
  ],
])('shows %s of another server as the call of a function', async (_title, items, messages) => {
  expect(await shown(...items)).toEqual({ messages, ignored: undefined })
})

it('shows finished calls among others as calls of one turn', async () => {
  const call = (id: string) => ({
    type: 'function_call',
    call_id: id,
    name: 'add',
    arguments: '{}',
  })
  const output = (id: string) => ({ type: 'function_call_output', call_id: id, output: id })
  const search = { type: 'web_search_call', id: 'ws_1', action: SEARCH }
  const { messages } = await shown(call('a'), search, call('b'), output('b'), output('a'))
  expect(messages).toMatchObject([
    { role: 'assistant', toolCalls: [{ id: 'a' }, { id: 'ws_1' }, { id: 'b' }] },
    { role: 'tool', content: 'a' },
    { role: 'tool', content: '' },
    { role: 'tool', content: 'b' },
  ])
})

it('reports the images of tools, and items about tools, as ignored', async () => {
  const image = { type: 'image_generation_call', id: 'ig_1', status: 'completed', result: 'iVBO' }
  const list = { type: 'mcp_list_tools', id: 'm', server_label: 's', tools: [{ name: 'a' }] }
  const approval = { type: 'mcp_approval_response', approval_request_id: 'm', approve: true }
  const added = { type: 'additional_tools', role: 'developer', tools: [{ type: 'web_search' }] }
  const update = { type: 'configuration_update', reasoning: { effort: 'low' } }
  const { messages, ignored } = await shown(image, list, approval, added, update)
  expect(ignored).toBe('input[0].result, input[1], input[2], input[3], input[4]')
  const shownText = 'The image was shown to the user.'
  expect(messages).toEqual(called('ig_1', 'image_generation', { prompt: '' }, shownText))
})

it('refuses the screenshot of a computer if the model reads no images', async () => {
  const call = { type: 'computer_call', call_id: 'call_1', action: { type: 'screenshot' } }
  const screenshot = { type: 'computer_screenshot', image_url: 'data:image/png;base64,iVBO' }
  const output = { type: 'computer_call_output', call_id: 'call_1', output: screenshot }
  const asked = { model: 'gpt-3.5-turbo', input: [call, output] }
  const response = await surface.post('/v1/responses', asked)
  expect(response.json()).toMatchObject({ error: { param: 'input[1].output.image_url' } })
})
