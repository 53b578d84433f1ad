import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { connect, type Socket } from 'node:net'

import { afterEach, describe, expect, it } from 'vitest'

import type { JobEvent } from '#api/jobs/observers.ts'
import type { GenerateInput } from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import { API_KEY, openSurface, readStream, speak } from './surface.ts'

const BODY = { model: 'tiny-chat', prompt: 'Hi' }
const CHAT = { model: 'tiny-chat', messages: [{ role: 'user', content: 'Hi' }] }

let surface: Awaited<ReturnType<typeof openSurface>>
afterEach(() => surface.app.close())

/** Says this much of an answer, then fails. */
function failAfter(events: number, error: Error) {
  return async function* ({ input }: { input: unknown }): AsyncGenerator<JobEvent<'completion'>> {
    let left = events
    for (const event of speak(input as GenerateInput, ['Hello', ' world'])) {
      if (left === 0) break
      left -= 1
      yield event
    }
    throw error
  }
}

describe('a job that fails', () => {
  const tooLong = failure.invalidRequest("This model's maximum context length is 8 tokens …", {
    code: 'context_length_exceeded',
    param: 'prompt',
  })
  const rows: readonly (readonly [ServiceError, number, object, object])[] = [
    [
      tooLong,
      400,
      { type: 'invalid_request_error', param: 'prompt', code: 'context_length_exceeded' },
      {},
    ],
    [
      failure.rateLimited('Slow down.', { retryAfterSeconds: 0.2, code: 'rate_limit_exceeded' }),
      429,
      { type: 'rate_limit_error', code: 'rate_limit_exceeded' },
      { 'retry-after': '1' },
    ],
    [
      failure.rateLimited('No more.', { openaiType: 'insufficient_quota', shouldRetry: false }),
      429,
      { type: 'insufficient_quota', code: null },
      { 'x-should-retry': 'false' },
    ],
    [
      failure.overloaded('Full.', { retryAfterSeconds: 500 }),
      503,
      { type: 'overloaded_error' },
      { 'retry-after': '60' },
    ],
    [failure.deadline('Too late.'), 504, { type: 'timeout_error', param: null, code: null }, {}],
  ]

  it.each(rows)(
    'before its first word is an ordinary error (%s)',
    async (error, status, body, headers) => {
      surface = await openSurface(failAfter(0, error))
      for (const stream of [false, true]) {
        const response = await surface.post('/v1/completions', { ...BODY, stream })
        expect(response.statusCode).toBe(status)
        expect(response.headers['content-type']).toMatch(/^application\/json/)
        expect(response.headers).toMatchObject(headers)
        expect(response.json().error).toMatchObject({ message: error.message, ...body })
      }
    },
  )

  it('after its first word is one error frame and an end without [DONE]', async () => {
    surface = await openSurface(failAfter(2, failure.deadline('Too late.', { code: 'timeout' })))
    for (const [url, body] of [
      ['/v1/completions', BODY],
      ['/v1/chat/completions', CHAT],
    ] as const) {
      const response = await surface.post(url, { ...body, stream: true })
      expect(response.statusCode).toBe(200)
      const { chunks, isDone } = readStream(response.body)
      expect(isDone).toBe(false)
      expect(chunks.at(-1)).toEqual({
        error: { message: 'Too late.', type: 'timeout_error', param: null, code: 'timeout' },
      })
    }
  })

  it('because of a bug reveals nothing about the bug, before or after its first word', async () => {
    for (const events of [0, 2]) {
      surface = await openSurface(failAfter(events, new Error('secret of the house')))
      const response = await surface.post('/v1/completions', { ...BODY, stream: true })
      expect(response.body).toContain('The server had an error while processing your request.')
      expect(response.body).not.toMatch(/secret|at .*\.ts/)
      if (events === 0) await surface.app.close()
    }
  })
})

describe('a client that leaves', () => {
  it.each([
    ['a plain answer', false, 0],
    ['a stream before its first word', true, 0],
    ['a stream', true, 2],
  ])('cancels the job of %s', async (_title, stream, events) => {
    const asked = Promise.withResolvers<AbortSignal>()
    surface = await openSurface(async function* (request) {
      const said = speak(request.input as GenerateInput, ['Hello', ' world'])
      for (let count = 0; count < events; count += 1) yield said.next().value as never
      asked.resolve(request.signal)
      await once(request.signal, 'abort')
    })
    const socket = await openSocket()
    send(socket, { ...BODY, stream })
    const signal = await asked.promise
    socket.destroy()
    await expect.poll(() => signal.aborted).toBe(true)
    await expect.poll(() => surface.submitter.requests.length).toBe(1)
  })

  it('does not cancel a job that is already answered', async () => {
    surface = await openSurface()
    await surface.post('/v1/completions', { ...BODY, stream: true })
    await surface.post('/v1/completions', BODY)
    expect(surface.submitter.requests.map(({ signal }) => signal.aborted)).toEqual([false, false])
    expect(surface.submitter.cancelled).toBe(0)
  })

  it('delays the job while it reads nothing, instead of filling memory', async () => {
    let said = 0
    surface = await openSurface(async function* ({ input }) {
      for (const event of speak(input as GenerateInput, Array(2000).fill('x'.repeat(64_000)))) {
        said += 1
        yield event
      }
    })
    const socket = await openSocket()
    socket.pause()
    send(socket, { ...BODY, stream: true })
    await expect.poll(() => said).toBeGreaterThan(0)
    let before = -1
    // The kernel's buffers fill first; then nothing more is taken.
    await expect
      .poll(
        () => {
          const isStill = said === before
          before = said
          return isStill
        },
        { interval: 500 },
      )
      .toBe(true)
    expect(said).toBeLessThan(1000)
    socket.destroy()
    await expect.poll(() => surface.submitter.cancelled).toBe(1)
  })
})

async function openSocket(): Promise<Socket> {
  await surface.app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = surface.app.server.address() as AddressInfo
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  return socket
}

function send(socket: Socket, body: object): void {
  const payload = JSON.stringify(body)
  socket.write(
    `POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${API_KEY}\r\n` +
      `content-type: application/json\r\ncontent-length: ${payload.length}\r\n\r\n${payload}`,
  )
}
