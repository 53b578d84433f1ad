import { type FastifyInstance, fastify } from 'fastify'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { registerRequestLog, requestIdFrom } from '#api/http/request.ts'
import type { Logger } from '#shared/logger.ts'

describe('the log of requests', () => {
  let app: FastifyInstance
  let url: string
  let lines: Record<string, unknown>[]

  beforeEach(async () => {
    lines = []
    const note = (fields: object, message: string) => void lines.push({ ...fields, message })
    const log: Logger = {
      fatal: note,
      error: note,
      warn: note,
      info: note,
      debug: note,
      child: () => log,
    }
    app = fastify({ genReqId: requestIdFrom('x-own-id') })
    registerRequestLog(app, log)
    app.get('/users/:id', async () => 'found')
    app.get('/slow', async (_request, reply) => {
      reply.raw.write('a part')
      return new Promise(() => {})
    })
    app.get('/broken', async () => {
      throw new Error('a secret detail')
    })
    url = await app.listen({ port: 0, host: '127.0.0.1' })
  })

  afterEach(() => app.close())

  const lineOf = async (route: string) => {
    await expect.poll(() => lines.filter((line) => line.route === route)).toHaveLength(1)
    return lines.find((line) => line.route === route)
  }

  it('has one line per answer: route template, status, id, and no path', async () => {
    const answer = await fetch(`${url}/users/secret-name?key=secret-key`)
    expect(await lineOf('/users/:id')).toEqual({
      operation: 'http.request',
      requestId: answer.headers.get('x-request-id'),
      method: 'GET',
      route: '/users/:id',
      status: 200,
      durationMs: expect.any(Number),
      message: 'request finished',
    })
    expect(JSON.stringify(lines)).not.toContain('secret')
  })

  it('uses the id of the configured header, if it is harmless', async () => {
    const send = async (id: string) => {
      const answer = await fetch(`${url}/users/1`, { headers: { 'x-own-id': id } })
      return answer.headers.get('x-request-id')
    }
    expect(await send('abc-123')).toBe('abc-123')
    expect(await send('a b')).toMatch(/^req_/)
    expect(await send('x'.repeat(65))).toMatch(/^req_/)
  })

  it.each([
    ['/nowhere', 'unknown', 404],
    ['/broken', '/broken', 500],
  ])('has a line for %s', async (path, route, status) => {
    await fetch(`${url}${path}`)
    expect(await lineOf(route)).toMatchObject({ status, message: 'request finished' })
  })

  it('has a line for a client that disconnects before the end of its answer', async () => {
    const abort = new AbortController()
    const answer = await fetch(`${url}/slow`, { signal: abort.signal })
    await answer.body?.getReader().read()
    abort.abort()
    expect(await lineOf('/slow')).toMatchObject({ status: 499, message: 'client left' })
  })
})
