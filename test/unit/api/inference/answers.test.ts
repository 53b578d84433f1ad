import { afterEach, describe, expect, it } from 'vitest'

import type { GenerateInput, TokenLogprob } from '#shared/contracts/completion.ts'

import { openSurface, readStream, type Script, speak } from './surface.ts'

const CHAT = { model: 'tiny-chat', messages: [{ role: 'user', content: 'Hi' }] }
const TOOLS = [{ type: 'function', function: { name: 'add' } }]
const CALL = [
  'Sure.',
  '\n<tool_',
  'call>{"name": "add", "argu',
  'ments": {"a"',
  ': 1}}</tool_call>',
]

function logprob(
  token: string,
  value: number | null,
  bytes = [...Buffer.from(token)],
): TokenLogprob {
  const top = value === null ? [] : [{ tokenId: 9, token: 'top', bytes: [116], logprob: -0.1 }]
  return { tokenId: 1, token, bytes, logprob: value, top }
}

function script(pieces: readonly string[], last: Parameters<typeof speak>[2] = {}): Script {
  return ({ input }) => speak(input as GenerateInput, pieces, last)
}

describe('a plain answer', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  afterEach(() => surface.app.close())

  it('is a text_completion with one choice per prompt and candidate', async () => {
    surface = await openSurface(script(['Hello', ' world'], { finishReason: 'length' }))
    const response = await surface.post('/v1/completions', {
      model: 'tiny-chat',
      prompt: 'Hi',
      n: 2,
    })
    const choice = { text: 'Hello world', logprobs: null, finish_reason: 'length' }
    expect(response.json()).toEqual({
      id: expect.stringMatching(/^cmpl-[A-Za-z0-9]{24}$/),
      object: 'text_completion',
      created: 1_750_000_000,
      model: 'tiny-chat',
      system_fingerprint: expect.stringMatching(/^fp_[0-9a-f]{10}$/),
      choices: [
        { ...choice, index: 0 },
        { ...choice, index: 1 },
      ],
      usage: {
        prompt_tokens: 5,
        completion_tokens: 4,
        total_tokens: 9,
        prompt_tokens_details: { cached_tokens: 2 },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
    })
    expect(response.headers).toMatchObject({
      'openai-version': '2020-10-01',
      'openai-organization': 'org-test',
      'openai-processing-ms': expect.stringMatching(/^\d+$/),
      'x-request-id': expect.stringMatching(/^req_[0-9a-f]{32}$/),
    })
  })

  it('gives log-probabilities as parallel arrays whose offsets count characters', async () => {
    const logprobs = [
      logprob('a', null),
      logprob('\uFFFD', -1, [0xe2, 0x82]),
      logprob('\uFFFD', -2, [0xac]),
      logprob('b', -3),
    ]
    surface = await openSurface(script(['a', '', '€', 'b'], { logprobs }))
    const ask = (fields: object) =>
      surface.post('/v1/completions', { model: 'tiny-chat', prompt: '😀', ...fields })
    const echoed = (await ask({ logprobs: 1, echo: true })).json().choices[0].logprobs
    expect(echoed).toEqual({
      tokens: ['a', 'bytes:\\xe2\\x82', 'bytes:\\xac', 'b'],
      token_logprobs: [null, -1, -2, -3],
      top_logprobs: [
        null,
        { top: -0.1, 'bytes:\\xe2\\x82': -1 },
        { top: -0.1, 'bytes:\\xac': -2 },
        { top: -0.1, b: -3 },
      ],
      text_offset: [0, 1, 1, 2],
    })
    const alone = (await ask({ logprobs: 0 })).json().choices[0].logprobs
    expect(alone.text_offset).toEqual([1, 2, 2, 3])
    expect(alone.top_logprobs[3]).toMatchObject({ b: -3 })
  })

  it('is a chat.completion whose message is from the assistant', async () => {
    surface = await openSurface(script(['Hello'], { logprobs: [logprob('Hello', -Infinity)] }))
    const response = await surface.post('/v1/chat/completions', { ...CHAT, logprobs: true })
    expect(response.json()).toEqual({
      id: expect.stringMatching(/^chatcmpl-[A-Za-z0-9]{29}$/),
      object: 'chat.completion',
      created: 1_750_000_000,
      model: 'tiny-chat',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Hello', refusal: null, annotations: [] },
          logprobs: {
            content: [
              {
                token: 'Hello',
                logprob: -9999,
                bytes: [72, 101, 108, 108, 111],
                top_logprobs: [{ token: 'top', logprob: -0.1, bytes: [116] }],
              },
            ],
            refusal: null,
          },
          finish_reason: 'stop',
        },
      ],
      usage: expect.objectContaining({ total_tokens: 6 }),
      service_tier: 'default',
      system_fingerprint: expect.stringMatching(/^fp_/),
    })
  })

  it.each([
    ['tools', { tools: TOOLS }, 'tool_calls'],
    [
      'a tool demanded by name',
      { tools: TOOLS, tool_choice: { type: 'function', function: { name: 'add' } } },
      'stop',
    ],
    ['tools but no call allowed', { tools: TOOLS, tool_choice: 'none' }, 'stop'],
    ['functions', { functions: [{ name: 'add' }] }, 'function_call'],
  ])('with %s ends with the right reason', async (title, fields, reason) => {
    surface = await openSurface(script(CALL))
    const response = await surface.post('/v1/chat/completions', { ...CHAT, ...fields })
    const [choice] = response.json().choices
    expect(choice.finish_reason).toBe(reason)
    const called = { name: 'add', arguments: '{"a": 1}' }
    if (title === 'functions') expect(choice.message.function_call).toEqual(called)
    else if (title.endsWith('allowed')) expect(choice.message.content).toBe(CALL.join(''))
    else {
      expect(choice.message).toMatchObject({
        content: 'Sure.',
        tool_calls: [
          { id: expect.stringMatching(/^call_\w{24}$/), type: 'function', function: called },
        ],
      })
    }
  })
})

describe('a streamed answer', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  afterEach(() => surface.app.close())

  it('of a completion is its text in chunks, a reason and [DONE]', async () => {
    surface = await openSurface(script(['Hel', 'lo\n"']))
    const body = { model: 'tiny-chat', prompt: 'Hi', n: 2, stream: true }
    const response = await surface.post('/v1/completions', body)
    expect(response.headers['content-type']).toMatch(/^text\/event-stream/)
    expect(response.headers['openai-organization']).toBe('org-test')
    expect(response.body).not.toMatch(/^event:/m)
    const { chunks, isDone } = readStream(response.body)
    expect(isDone).toBe(true)
    expect(new Set(chunks.map(({ id, object }) => `${id} ${object}`)).size).toBe(1)
    expect(chunks[0]).toEqual({
      id: expect.stringMatching(/^cmpl-/),
      object: 'text_completion',
      created: 1_750_000_000,
      model: 'tiny-chat',
      system_fingerprint: expect.any(String),
      choices: [{ text: 'Hel', index: 0, logprobs: null, finish_reason: null }],
    })
    for (const index of [0, 1]) {
      const own = chunks.flatMap(({ choices }) =>
        choices.filter((choice) => choice.index === index),
      )
      expect(own.map(({ text }) => text).join('')).toBe('Hello\n"')
      expect(own.map((choice) => choice.finish_reason)).toEqual([null, 'stop'])
    }
  })

  it('carries its usage in a last chunk without choices when asked', async () => {
    surface = await openSurface()
    for (const [url, body] of [
      ['/v1/completions', { model: 'tiny-chat', prompt: 'Hi' }],
      ['/v1/chat/completions', CHAT],
    ] as const) {
      const options = { stream: true, stream_options: { include_usage: true } }
      const { chunks } = readStream((await surface.post(url, { ...body, ...options })).body)
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 7 } })
      expect(chunks.slice(0, -1).every(({ usage }) => usage === null)).toBe(true)
    }
  })

  it('of a chat begins with the role and ends with an empty delta', async () => {
    surface = await openSurface(script(['Hel', 'lo']))
    const response = await surface.post('/v1/chat/completions', { ...CHAT, stream: true })
    const { chunks, isDone } = readStream(response.body)
    expect(isDone).toBe(true)
    expect(chunks.every(({ object }) => object === 'chat.completion.chunk')).toBe(true)
    expect(chunks.map(({ choices }) => choices[0])).toEqual([
      choiceOf({ role: 'assistant', content: '', refusal: null }),
      choiceOf({ content: 'Hel' }),
      choiceOf({ content: 'lo' }),
      choiceOf({}, 'stop'),
    ])
  })

  it('of a chat gives calls in fragments with one id, and the reason at the end', async () => {
    surface = await openSurface(script(CALL))
    const body = { ...CHAT, stream: true, tools: TOOLS }
    const { chunks } = readStream((await surface.post('/v1/chat/completions', body)).body)
    const call = (fields: object) => choiceOf({ tool_calls: [{ index: 0, ...fields }] })
    expect(chunks.slice(1).map(({ choices }) => choices[0])).toEqual([
      choiceOf({ content: 'Sure.' }),
      call({
        id: expect.stringMatching(/^call_/),
        type: 'function',
        function: { name: 'add', arguments: '' },
      }),
      call({ function: { arguments: '{"a"' } }),
      call({ function: { arguments: ': 1}' } }),
      choiceOf({}, 'tool_calls'),
    ])
  })

  it('of a chat gives the log-probabilities of withheld text with the next chunk', async () => {
    const logprobs = [logprob('a<', -1), logprob('b', -2)]
    surface = await openSurface(script(['a<', 'b'], { logprobs }))
    const body = { ...CHAT, stream: true, tools: TOOLS, logprobs: true }
    const { chunks } = readStream((await surface.post('/v1/chat/completions', body)).body)
    const tokens = chunks.map(({ choices }) => {
      const entries = choices[0]?.logprobs as { content: { token: string }[] } | null
      return entries?.content.map(({ token }) => token)
    })
    expect(tokens).toEqual([undefined, ['a<'], ['b'], undefined])
  })

  it('is padded on request', async () => {
    surface = await openSurface()
    const body = { ...CHAT, stream: true, stream_options: { include_obfuscation: true } }
    const { chunks } = readStream((await surface.post('/v1/chat/completions', body)).body)
    expect(chunks[0]?.obfuscation).toMatch(/^\w{1,16}$/)
  })
})

function choiceOf(delta: object, reason: string | null = null): object {
  return { index: 0, delta, logprobs: null, finish_reason: reason }
}

describe('the reasoning of an answer', () => {
  const thought: Script = function* ({ input }) {
    const dialect = { calls: 'hermes', reasoning: 'think' } as const
    for (const event of speak(input as GenerateInput, ['<think>Hm.</think>', 'Yes'])) {
      if (event.type === 'started') yield { ...event, dialect }
      else if (event.type !== 'result') yield event
      else yield { ...event, result: { ...event.result, dialect } } as typeof event
    }
  }

  it.each([
    [{}, 'Hm.'],
    [{ include_reasoning: false }, null],
    [{ reasoning: { exclude: true } }, null],
  ])('is in two fields of the message, with %j: %j', async (fields, text) => {
    const surface = await openSurface(thought)
    const reasoning = { reasoning_content: text, reasoning: text }
    const message = { content: 'Yes', refusal: null, annotations: [], ...reasoning }
    const whole = await surface.post('/v1/chat/completions', { ...CHAT, ...fields })
    expect(whole.json().choices[0].message).toEqual({ role: 'assistant', ...message })
    const streamed = await surface.post('/v1/chat/completions', {
      ...CHAT,
      ...fields,
      stream: true,
    })
    const deltas = readStream(streamed.body).chunks.map(({ choices }) => choices[0]?.delta)
    expect(deltas.slice(1)).toEqual([...(text === null ? [] : [reasoning]), { content: 'Yes' }, {}])
    await surface.app.close()
  })
})
