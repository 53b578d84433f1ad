import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { failure } from '#shared/errors.ts'

import { openSurface, type Script } from './surface.ts'

const BODY = { model: 'tts-1', input: 'Hello there.', voice: 'alloy' }
const URL = '/v1/audio/speech'
const PARTS = [Buffer.from([1, 2, 3]), Buffer.from([4]), Buffer.from([5, 6])]

let surface: Awaited<ReturnType<typeof openSurface>>
/** The messages of the worker: bytes from an offset, or an error. */
let parts: readonly ({ readonly offset: number; readonly bytes: Buffer } | Error)[] = []

const script: Script = async function* () {
  yield { type: 'started', workerId: 'w1', promptTokens: 7, speechFormat: 'mp3' }
  for (const [index, part] of parts.entries()) {
    if (part instanceof Error) throw part
    const audio = { offset: part.offset, data: part.bytes.toString('base64') }
    yield { type: 'progress', step: index, steps: 3, audio }
  }
  yield {
    type: 'result',
    result: { durationSeconds: 1 },
    usage: { promptTokens: 7, completionTokens: 0, cachedTokens: 0 },
    timings: { queueMs: 1, prepareMs: 1, runMs: 1 },
  } as never
}

beforeAll(async () => {
  surface = await openSurface(script)
})
afterAll(() => surface.app.close())

const whole = () => {
  let offset = 0
  return PARTS.map((bytes) => {
    const part = { offset, bytes }
    offset += bytes.length
    return part
  })
}

describe('speech', () => {
  it('is answered as bytes of the type that the worker chose', async () => {
    parts = whole()
    const response = await surface.post(URL, BODY)
    expect(response.statusCode).toBe(200)
    expect(response.headers['content-type']).toBe('audio/mpeg')
    expect(response.rawPayload).toEqual(Buffer.concat(PARTS))
    expect(surface.submitter.requests.at(-1)).toMatchObject({
      kind: 'speech',
      input: { task: 'speak', text: 'Hello there.', voice: 'alloy', speed: 1, format: null },
    })
  })

  it('is answered as events on request', async () => {
    parts = whole()
    const response = await surface.post(URL, { ...BODY, stream_format: 'sse' })
    expect(response.headers['content-type']).toBe('text/event-stream; charset=utf-8')
    const events = response.body
      .split('\n\n')
      .filter((frame) => frame !== '')
      .map((frame) => JSON.parse(frame.replace(/^data: /, '')) as { type: string; audio: string })
    const usage = { input_tokens: 7, output_tokens: 0, total_tokens: 7 }
    expect(events.at(-1)).toEqual({ type: 'speech.audio.done', usage })
    const deltas = events.slice(0, -1)
    expect(deltas.every(({ type }) => type === 'speech.audio.delta')).toBe(true)
    const sent = Buffer.concat(deltas.map(({ audio }) => Buffer.from(audio, 'base64')))
    expect(sent).toEqual(Buffer.concat(PARTS))
  })

  it('omits bytes that a second worker sends again', async () => {
    const [first, second, third] = whole() as [never, never, never]
    parts = [first, second, first, second, third]
    expect((await surface.post(URL, BODY)).rawPayload).toEqual(Buffer.concat(PARTS))
    parts = [first, { offset: 0, bytes: Buffer.concat(PARTS) }]
    expect((await surface.post(URL, BODY)).rawPayload).toEqual(Buffer.concat(PARTS))
  })

  it('that fails before its first bytes is an ordinary error', async () => {
    parts = [failure.invalidRequest('no such voice', { param: 'voice' })]
    const response = await surface.post(URL, BODY)
    expect(response.statusCode).toBe(400)
    expect(response.json()).toMatchObject({ error: { param: 'voice' } })
  })

  it('accepts a voice by its id, a speed and a format', async () => {
    parts = whole()
    const asked = { voice: { id: 'af_heart' }, speed: 1.5, response_format: 'flac' }
    await surface.post(URL, { ...BODY, ...asked })
    const input = { voice: 'af_heart', speed: 1.5, format: 'flac' }
    expect(surface.submitter.requests.at(-1)).toMatchObject({ input })
  })

  it('reports instructions as ignored', async () => {
    parts = whole()
    const response = await surface.post(URL, { ...BODY, instructions: 'Whisper.' })
    expect(JSON.stringify(response.headers)).toContain('instructions')
  })
})

describe('a request for speech that is refused', () => {
  it.each([
    ['no input', { input: undefined }, 'input'],
    ['an empty input', { input: '' }, 'input'],
    ['an input that is too long', { input: 'x'.repeat(4097) }, 'input'],
    ['no voice', { voice: undefined }, 'voice'],
    ['a voice of the wrong type', { voice: 7 }, 'voice'],
    ['an unknown format', { response_format: 'ogg' }, 'response_format'],
    ['a speed beyond the range', { speed: 4.5 }, 'speed'],
    ['an unknown stream format', { stream_format: 'json' }, 'stream_format'],
  ])('has %s', async (_what, change, param) => {
    const response = await surface.post(URL, { ...BODY, ...change })
    expect(response.statusCode).toBe(400)
    expect(response.json()).toMatchObject({ error: { param } })
  })

  it('names a model that does not speak', async () => {
    const response = await surface.post(URL, { ...BODY, model: 'whisper-1' })
    expect(response.statusCode).toBe(404)
    expect(response.json()).toMatchObject({
      error: { message: expect.stringContaining('v1/audio/speech') },
    })
  })
})

it('lists the models that speak and the voices that their workers report', async () => {
  const queue = (modelId: string, voices?: readonly string[]) => ({
    ...{ kind: 'speech' as const, modelId, isReady: true },
    ...(voices && { voices }),
  })
  const own = await openSurface(script, {
    workersSeen: () => [
      { queues: [queue('tiny-tts', ['ann', 'bob']), queue('gone', ['eve'])] },
      { queues: [queue('tiny-tts')] },
      { queues: [queue('tiny-tts', ['bob'])] },
    ],
  })
  const listed = await Promise.all(['models', 'voices'].map((name) => own.get(`/v1/audio/${name}`)))
  await own.app.close()
  expect(listed.map((response) => response.json())).toEqual([
    { models: [{ id: 'tiny-tts', name: 'tiny-tts' }] },
    {
      voices: [
        { id: 'ann', name: 'ann' },
        { id: 'bob', name: 'bob' },
      ],
    },
  ])
})
