import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'

import { openSurface, speak } from './surface.ts'

const say = (content: string) => ({ role: 'user', content })
const CONVERSATIONS = [[say('one')], [{ role: 'system', content: 'Be kind.' }, say('two')]]

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(({ input }) => speak(input as GenerateInput, ['Hello']))
})
afterAll(() => surface.app.close())

const ask = (fields: object = {}) =>
  surface.post('/v1/chat/completions/batch', {
    model: 'tiny-chat',
    messages: CONVERSATIONS,
    ...fields,
  })

describe('POST /v1/chat/completions/batch', () => {
  it('answers each conversation with one choice of the same answer', async () => {
    const answer = await ask({ temperature: 0, max_tokens: 7, seed: 3 })
    expect(answer.statusCode).toBe(200)
    expect(answer.json()).toMatchObject({
      object: 'chat.completion',
      choices: [
        { index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' },
        { index: 1, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' },
      ],
      usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
    })
    expect(surface.submitter.input).toMatchObject({
      prompts: [
        { form: 'chat', messages: [{ role: 'user', content: 'one' }] },
        {
          form: 'chat',
          messages: [
            { role: 'system', content: 'Be kind.' },
            { role: 'user', content: 'two' },
          ],
        },
      ],
      ...{ n: 1, bestOf: 1, maxTokens: 7, stream: false },
    })
  })

  it('repeats the prefilled message of each conversation', async () => {
    const prefilled = ['A', 'B'].map((content) => [say('x'), { role: 'assistant', content }])
    const fields = { messages: prefilled, add_generation_prompt: false }
    const answer = await ask({ ...fields, echo: true, continue_final_message: true })
    const { choices } = answer.json()
    expect(choices.map(({ message }: { message: object }) => message)).toMatchObject([
      { content: 'AHello' },
      { content: 'BHello' },
    ])
  })

  it('reports fields without effect for the whole request', async () => {
    const { headers } = await ask({ prompt_cache_key: 'a', chat_template_kwargs: { unread: 1 } })
    const reported = String(headers['x-millrace-ignored-parameters'])
    expect(reported).toContain('prompt_cache_key')
    expect(reported).toContain('chat_template_kwargs.unread')
  })

  it.each([
    ['messages', { messages: [] }],
    ['messages[1]', { messages: [[say('a')], []] }],
    ['messages[0]', { messages: [say('a')] }],
    ['messages[1][0].role', { messages: [[say('a')], [{ ...say('b'), role: 'robot' }]] }],
    [
      'messages[1][0].role',
      { messages: [[say('a')], [{ ...say('b'), role: 'tool', tool_call_id: 'c' }]] },
    ],
    ['messages', { messages: Array(129).fill([say('a')]) }],
    ['messages', { messages: Array(2).fill(Array(1100).fill(say('a'))) }],
    ['n', { n: 2 }],
    ['stream', { stream: true }],
    ['store', { store: true }],
    ['tools', { tools: [] }],
    ['tool_choice', { tool_choice: 'auto' }],
    ['prompt_logprobs', { prompt_logprobs: 1 }],
  ])('refuses a wrong %s', async (param, fields) => {
    const answer = await ask(fields)
    expect(answer.statusCode).toBe(400)
    expect(answer.json().error).toMatchObject({ type: 'invalid_request_error', param })
  })

  it("is not served without vLLM's dialect", async () => {
    const config = { deadlineSeconds: 600, dialectsOff: ['vllm' as const] }
    const { app, post } = await openSurface(undefined, { config })
    const answer = await post('/v1/chat/completions/batch', { messages: CONVERSATIONS })
    await app.close()
    expect(answer.statusCode).toBe(404)
  })
})
