import { once } from 'node:events'
import { type ClientRequest, type IncomingMessage, request as open } from 'node:http'
import type { AddressInfo } from 'node:net'

import { type FastifyInstance, type FastifyRequest, fastify } from 'fastify'
import { afterEach, expect, it } from 'vitest'

import { limitBodyMemory } from '#api/http/limit-body-memory.ts'
import { normalizeError } from '#api/http/normalize-error.ts'
import { addRequestContext } from '#api/v1/request-context.ts'

const BODY_BYTES = 1024 * 1024
// Callers have five eighths of all, and one of them three quarters of these: three bodies.
const BYTES_MAX = 7 * BODY_BYTES

let app: FastifyInstance
const clients: ClientRequest[] = []

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  await app.close()
})

/** An application whose route answers when the test calls one of `answers`. */
async function openApp(bytesMax = BYTES_MAX) {
  const entered: string[] = []
  const answers: (() => void)[] = []
  app = fastify({ bodyLimit: BODY_BYTES, forceCloseConnections: true })
  addRequestContext(app)
  limitBodyMemory(app, bytesMax)
  app.addHook('onRequest', async (request) => {
    const organizationId = String(request.headers['x-organization'] ?? '')
    if (organizationId === '') return
    const caller = { organizationId, scopes: null, modelIds: null, expiresAtMs: null }
    request.context.caller = caller
  })
  app.setErrorHandler((error, _request, reply) => reply.code(503).send(normalizeError(error).code))
  const handler = async (request: FastifyRequest) => {
    entered.push(String(request.headers['x-organization'] ?? 'public'))
    await new Promise<void>((answer) => answers.push(answer))
    return {}
  }
  app.post('/', handler)
  app.get('/contents', { config: { readsContents: true } }, handler)
  app.get('/small-contents', { config: { readsContents: true } }, (request) => {
    request.context.contentsRoom?.shrinkTo(1000)
    return handler(request)
  })
  app.get('/later', { config: { readsContents: 'later' } }, async (request) => {
    entered.push('later')
    await request.context.reserveContents?.()
    return handler(request)
  })
  await app.listen()
  const { port } = app.server.address() as AddressInfo
  /** Begins a request; `bytes` of its body are sent. */
  const begin = (organization: string | undefined, bytes = BODY_BYTES, isChunked = false) => {
    const headers = {
      'content-type': 'application/json',
      ...(!isChunked && { 'content-length': String(BODY_BYTES) }),
      ...(organization !== undefined && { 'x-organization': organization }),
    }
    const client = open({ port, method: 'POST', headers, agent: false })
    client.on('error', () => {})
    clients.push(client)
    const text = JSON.stringify('x'.repeat(bytes - 2))
    if (bytes === BODY_BYTES || isChunked) client.end(text)
    else client.write(text)
    const answer = once(client, 'response').then(([response]) => {
      const { statusCode } = response as IncomingMessage
      response.resume()
      return statusCode
    })
    answer.catch(() => {})
    return { client, answer }
  }
  /** Asks for contents. */
  const read = (organization: string, path = '/contents') => {
    const headers = { 'x-organization': organization }
    const client = open({ port, path, headers, agent: false })
    client.on('error', () => {})
    clients.push(client)
    client.end()
    return client
  }
  const countOf = (name: string) => entered.filter((one) => one === name).length
  const waitFor = (name: string, count: number) => expect.poll(() => countOf(name)).toBe(count)
  return { begin, read, countOf, waitFor, answers }
}

it('does not read bodies while their organization uses its share', async () => {
  const { begin, countOf, waitFor, answers } = await openApp()
  for (let sent = 0; sent < 8; sent += 1) begin('one')
  await waitFor('one', 3)
  // The rest is for others, also those without a caller.
  begin('two')
  await waitFor('two', 1)
  begin(undefined, 20_000, true)
  expect(countOf('one')).toBe(3)
  for (const answer of answers.splice(0)) answer()
  await waitFor('one', 6)
})

it('counts bodies that never end until their clients disconnect', async () => {
  const { begin, countOf, waitFor } = await openApp()
  const unfinished = Array.from({ length: 20 }, () => begin('one', 100_000))
  begin('one')
  begin('two')
  await waitFor('two', 1)
  expect(countOf('one')).toBe(0)
  for (const { client } of unfinished) client.destroy()
  await waitFor('one', 1)
})

it('reserves the size of the largest body for a chunked one until it has ended', async () => {
  const { begin, waitFor } = await openApp()
  for (let sent = 0; sent < 8; sent += 1) begin('one', 30_000, true)
  await waitFor('one', 8)
})

it('reserves memory for content that an answer reads later when it does so', async () => {
  const { read, countOf, waitFor, answers } = await openApp(16 * 8 * BODY_BYTES)
  for (let sent = 0; sent < 10; sent += 1) read('one', '/later')
  await waitFor('later', 10)
  // A quarter is for contents, and one organization has three quarters of it.
  await waitFor('one', 3)
  read('two', '/later')
  await waitFor('two', 1)
  expect(countOf('one')).toBe(3)
  for (const answer of answers.splice(0)) answer()
  await waitFor('one', 6)
})

it('refuses a body when too many of its organization wait', async () => {
  const { begin, waitFor } = await openApp()
  const sent = Array.from({ length: 3 + 250 + 1 }, () => begin('one', 100_000))
  expect(await Promise.race(sent.map(({ answer }) => answer))).toBe(503)
  begin('two')
  await waitFor('two', 1)
})

it('lets few requests read stored contents at a time, of organizations in turn', async () => {
  const { read, countOf, waitFor, answers } = await openApp(4 * 5 * 8 * BODY_BYTES)
  const sent = Array.from({ length: 20 }, () => read('one'))
  await waitFor('one', 3)
  read('two')
  await waitFor('two', 1)
  read('two')
  expect(countOf('one')).toBe(3)
  for (const answer of answers.splice(0)) answer()
  await waitFor('two', 2)
  for (const client of sent) client.destroy()
  read('three')
  await waitFor('three', 1)
})

it('holds what was read of contents to the end of the answer', async () => {
  const { read, waitFor } = await openApp(4 * 2 * 8 * BODY_BYTES)
  for (let sent = 0; sent < 40; sent += 1) read('one', '/small-contents')
  await waitFor('one', 40)
})

it('holds nothing of answers that this process asked itself for', async () => {
  const { answers } = await openApp(4 * 8 * BODY_BYTES)
  for (let asked = 0; asked < 3; asked += 1) {
    const answer = app.inject({ path: '/contents', headers: { 'x-organization': 'one' } })
    await expect.poll(() => answers.length).toBe(1)
    answers.pop()?.()
    expect((await answer).statusCode).toBe(200)
  }
})
