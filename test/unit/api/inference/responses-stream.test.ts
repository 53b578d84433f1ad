import { afterEach, describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

import { CALL, logprob, readEvents, type StreamEvent, script, TOOLS } from './responses-surface.ts'
import { openSurface, speak } from './surface.ts'

const BODY = { model: 'tiny-chat', input: 'Hi', stream: true }

describe('a streamed response', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  afterEach(() => surface.app.close())
  const ask = async (fields: object = {}) =>
    readEvents((await surface.post('/v1/responses', { ...BODY, ...fields })).body)

  it('has named events, numbered from zero, from its creation to its end', async () => {
    surface = await openSurface(script(['Hel', 'lo']))
    const response = await surface.post('/v1/responses', BODY)
    expect(response.headers['content-type']).toMatch(/^text\/event-stream/)
    expect(response.body).not.toContain('[DONE]')
    const events = readEvents(response.body)
    expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index))
    const [created, , added, partAdded] = events as [
      StreamEvent,
      StreamEvent,
      StreamEvent,
      StreamEvent,
    ]
    const completed = events.at(-1) as StreamEvent
    const { id } = completed.response as { id: string }
    const { id: item_id } = added.item as { id: string }
    const place = { item_id, output_index: 0, content_index: 0 }
    const part = { type: 'output_text', text: 'Hello', annotations: [], logprobs: [] }
    const item = { id: item_id, type: 'message', role: 'assistant' }
    expect(events.map(({ sequence_number: _, ...event }) => event)).toEqual([
      { type: 'response.created', response: created.response },
      { type: 'response.in_progress', response: created.response },
      { type: 'response.output_item.added', output_index: 0, item: added.item },
      { type: 'response.content_part.added', ...place, part: partAdded.part },
      { type: 'response.output_text.delta', ...place, delta: 'Hel', logprobs: [] },
      { type: 'response.output_text.delta', ...place, delta: 'lo', logprobs: [] },
      { type: 'response.output_text.done', ...place, text: 'Hello', logprobs: [] },
      { type: 'response.content_part.done', ...place, part },
      {
        type: 'response.output_item.done',
        output_index: 0,
        item: { ...item, status: 'completed', content: [part] },
      },
      { type: 'response.completed', response: completed.response },
    ])
    expect(created.response).toMatchObject({ id, status: 'in_progress', output: [], usage: null })
    expect(added.item).toEqual({ ...item, status: 'in_progress', content: [] })
    expect(partAdded.part).toEqual({ ...part, text: '' })
    expect(completed.response).toMatchObject({
      status: 'completed',
      completed_at: 1_750_000_000,
      usage: { total_tokens: 7 },
      output: [{ ...item, status: 'completed', content: [part] }],
    })
  })

  it.each([
    ['words', ['Hello', ' world'], {}],
    ['a call', CALL, { tools: TOOLS }],
    ['two calls', [...CALL, CALL.join('')], { tools: TOOLS }],
    ['log-probabilities', CALL, { tools: TOOLS, include: ['message.output_text.logprobs'] }],
    ['nothing', [''], { tools: TOOLS }],
  ])('ends with the response that a plain request gets: %s', async (_title, pieces, fields) => {
    const logprobs = pieces.map((piece) => logprob(piece, -1))
    surface = await openSurface(script(pieces, 'include' in fields ? { logprobs } : {}))
    const end = (await ask(fields)).at(-1) as StreamEvent
    const { response } = end as unknown as { response: { id: string; output: object[] } }
    const plain = await surface.post('/v1/responses', { ...BODY, ...fields, stream: false })
    // The ids are derived from that of the response.
    const shape = (answer: object) =>
      JSON.parse(JSON.stringify(answer).replace(/"(resp|msg|fc|call)_\w+"/g, '"$1"'))
    expect(shape(response)).toEqual(shape(plain.json()))
    expect(end.type).toBe('response.completed')
  })

  it('streams a call in fragments, and each event names its item', async () => {
    surface = await openSurface(script(CALL))
    const events = await ask({ tools: TOOLS })
    const call = events.filter(({ output_index }) => output_index === 1)
    const { item } = call[0] as unknown as { item: { id: string; call_id: string } }
    const place = { item_id: item.id, output_index: 1 }
    expect(call.map(({ sequence_number: _, ...event }) => event)).toEqual([
      {
        type: 'response.output_item.added',
        output_index: 1,
        item: { ...item, type: 'function_call', status: 'in_progress', name: 'add', arguments: '' },
      },
      { type: 'response.function_call_arguments.delta', ...place, delta: '{"a"' },
      { type: 'response.function_call_arguments.delta', ...place, delta: ': 1}' },
      {
        type: 'response.function_call_arguments.done',
        ...place,
        name: 'add',
        arguments: '{"a": 1}',
      },
      {
        type: 'response.output_item.done',
        output_index: 1,
        item: { ...item, status: 'completed', arguments: '{"a": 1}' },
      },
    ])
    const messageEnd = events.findIndex(({ type }) => type === 'response.output_item.done')
    expect(events[messageEnd]).toMatchObject({ output_index: 0, item: { type: 'message' } })
    expect(events[messageEnd + 1]).toBe(call[0])
  })

  it('sends each delta with its log-probabilities', async () => {
    const logprobs = [logprob('a', -1), logprob('b', -2)]
    surface = await openSurface(script(['a', 'b'], { logprobs }))
    const events = await ask({ include: ['message.output_text.logprobs'], top_logprobs: 1 })
    const tokens = events
      .filter(({ type }) => type.startsWith('response.output_text.'))
      .map((event) => (event.logprobs as { token: string }[]).map(({ token }) => token))
    expect(tokens).toEqual([['a'], ['b'], ['a', 'b']])
  })

  it('ends as incomplete at its token limit', async () => {
    surface = await openSurface(script(['Hel', 'lo'], { finishReason: 'length' }))
    const [itemDone, end] = (await ask()).slice(-2)
    expect(itemDone).toMatchObject({ item: { status: 'incomplete' } })
    expect(end).toMatchObject({
      type: 'response.incomplete',
      response: {
        status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' },
        output: [{ status: 'incomplete', content: [{ text: 'Hello' }] }],
      },
    })
  })

  it('pads its deltas when asked', async () => {
    surface = await openSurface()
    const events = await ask({ stream_options: { include_obfuscation: true, include_usage: true } })
    const padded = events.filter(({ obfuscation }) => obfuscation !== undefined)
    expect(padded.map(({ type }) => type)).toEqual(Array(2).fill('response.output_text.delta'))
    expect(padded[0]?.obfuscation).toMatch(/^\w{1,16}$/)
  })

  it('that breaks off contains the text so far and the reason', async () => {
    surface = await openSurface(async function* ({ input }) {
      const said = speak(input as GenerateInput, ['Hel', 'lo'])
      yield said.next().value as never
      yield said.next().value as never
      throw failure.deadline('Too late.', { code: 'request_timeout' })
    })
    const [failed, error] = (await ask()).slice(-2)
    expect(failed).toMatchObject({
      type: 'response.failed',
      response: {
        status: 'failed',
        error: { code: 'server_error', message: 'Too late.' },
        usage: null,
        output: [{ status: 'incomplete', content: [{ text: 'Hel' }] }],
      },
    })
    const shown = { code: 'request_timeout', message: 'Too late.', param: null }
    expect(error).toEqual({
      type: 'error',
      sequence_number: (failed?.sequence_number ?? 0) + 1,
      ...shown,
      error: { ...shown, type: expect.any(String) },
    })
  })

  it('that fails before its first word is an ordinary error', async () => {
    surface = await openSurface(() => {
      throw failure.overloaded('Full.', { retryAfterSeconds: 1 })
    })
    const response = await surface.post('/v1/responses', BODY)
    expect([response.statusCode, response.json().error.message]).toEqual([503, 'Full.'])
  })
})
