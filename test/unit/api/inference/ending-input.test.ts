import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

const MESSAGES = [{ role: 'user', content: 'Hi' }]

type Row = readonly [title: string, fields: object, expected: object]

const ENDING_ROWS: readonly Row[] = [
  ['ignore_eos', { ignore_eos: true }, { ignoresEndOfText: true }],
  ['min_tokens', { min_tokens: 4 }, { minTokens: 4 }],
  ['stop_token_ids', { stop_token_ids: [7, 9] }, { stopTokenIds: [7, 9] }],
  ['a stop string that stays', { include_stop_str_in_output: true }, { keepsStopString: true }],
]
const UNSET_ENDINGS = {
  ignore_eos: false,
  min_tokens: 0,
  stop_token_ids: [],
  include_stop_str_in_output: null,
  skip_special_tokens: true,
  spaces_between_special_tokens: true,
}

const TEMPLATE_ROWS: readonly Row[] = [
  ['no turn opened', { add_generation_prompt: false }, { opensAnswer: false }],
  [
    'a switch of its template',
    { chat_template_kwargs: { enable_thinking: false } },
    { variables: { enable_thinking: false } },
  ],
  [
    'an answer begun by its client',
    {
      messages: [...MESSAGES, { role: 'assistant', content: 'The' }],
      continue_final_message: true,
      add_generation_prompt: false,
    },
    { continuesLast: true, opensAnswer: false },
  ],
]

describe('a field of other servers of this API asks the workers for', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface()
  })
  afterAll(() => surface.app.close())

  it.each(ENDING_ROWS)('an end by %s', async (_title, fields, expected) => {
    const completion = await surface.inputOf('/v1/completions', fields)
    const chat = await surface.inputOf('/v1/chat/completions', { messages: MESSAGES, ...fields })
    expect([completion.ending, chat.ending]).toEqual([expected, expected])
  })

  it('the usual end if such fields have no effect', async () => {
    expect((await surface.inputOf('/v1/completions', UNSET_ENDINGS)).ending).toBeUndefined()
  })

  it.each(TEMPLATE_ROWS)('a chat with %s', async (_title, fields, expected) => {
    const input = await surface.inputOf('/v1/chat/completions', { messages: MESSAGES, ...fields })
    expect(input.prompts[0]).toMatchObject({ template: expected })
  })
})
