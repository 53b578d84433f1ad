import { randomUUID } from 'node:crypto'

import multipart from '@fastify/multipart'
import { afterEach, describe, expect } from 'vitest'

import { openEventStream } from '#api/http/sse.ts'
import { createIdempotencyGate } from '#api/v1/idempotency.ts'
import { openIdempotencyStore } from '#api/v1/idempotency-store.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { failure } from '#shared/errors.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const log = createLogger({ level: 'silent' })
const closers: (() => unknown)[] = []

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

interface Sent {
  mode?: 'fail' | 'limit' | 'stream' | 'brokenStream' | 'hang' | 'refuse' | 'large'
  ms?: number
}

/** A route that counts its runs, behind the gate, served by two processes' worth of applications. */
async function openGated(database: Database, redisUrl: string, keyPrefix: string) {
  const redis = await openRedis(redisUrl, 'producer', log)
  closers.push(() => redis.disconnect())
  const runs = { count: 0, left: 0 }
  const gate = createIdempotencyGate({
    ...{ clock: systemClock, log, deadlineSeconds: 10 },
    idempotency: openIdempotencyStore(redis, keyPrefix),
  })
  const openOne = async () => {
    const surface = await openV1App(
      database,
      [
        async (app) => {
          app.post('/run', { config: { scope: 'any' } }, async (request, reply) => {
            runs.count += 1
            const { mode, ms = 0 } = request.body as Sent
            if (mode === 'hang') reply.raw.once('close', () => (runs.left += 1))
            await new Promise((resolve) => setTimeout(resolve, mode === 'hang' ? 300 : ms))
            if (mode === 'fail') throw failure.overloaded('not now')
            if (mode === 'limit') throw failure.rateLimited('too fast')
            if (mode === 'refuse') throw failure.invalidRequest('bad', { param: 'x' })
            if (mode === 'stream' || mode === 'brokenStream') {
              const stream = openEventStream(reply)
              await stream.write(`data: {"run":${runs.count}}\n\n`)
              await stream.write(mode === 'stream' ? 'data: [DONE]\n\n' : 'data: {"error":{}}\n\n')
              stream.end()
              return reply
            }
            reply.code(201).header('location', `/v1/run/${runs.count}`)
            return { run: runs.count, text: mode === 'large' ? 'x'.repeat(9 * 1024 * 1024) : 'ä' }
          })
          await app.register(multipart)
          app.post('/form', { config: { scope: 'any' } }, async (request) => {
            runs.count += 1
            await (await request.file())?.toBuffer()
            return { run: runs.count }
          })
        },
      ],
      { gates: [gate] },
    )
    closers.push(() => surface.app.close())
    return surface
  }
  const surface = await openOne()
  const send = async (body: Sent, key: string, options: { secret?: string; on?: string } = {}) => {
    const answer = await fetch(`${options.on ?? surface.base}/v1/run`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: {
        authorization: `Bearer ${options.secret ?? surface.key}`,
        'content-type': 'application/json',
        'idempotency-key': key,
      },
    })
    const isReplay = answer.headers.get('idempotent-replayed') === 'true'
    return { status: answer.status, isReplay, text: await answer.text(), headers: answer.headers }
  }
  return { ...surface, runs, send, openOne, redis }
}

type Gated = Awaited<ReturnType<typeof openGated>>

describe('Idempotency-Key', () => {
  it('replays status, headers and body of the first answer', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { send, runs, redis } = await openGated(database, redisUrl, keyPrefix)
    const first = await send({}, 'a')
    expect(first).toMatchObject({ status: 201, isReplay: false })
    const again = await send({}, 'a')
    expect(again).toMatchObject({ status: 201, isReplay: true, text: first.text })
    for (const name of ['location', 'content-type'])
      expect(again.headers.get(name)).toBe(first.headers.get(name))
    expect(again.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'))
    expect(await send({}, 'b')).toMatchObject({ isReplay: false })
    expect(runs.count).toBe(2)
    const [record] = (await redis.keys(`${keyPrefix}:idempotency:*`)).filter(
      (name) => !name.includes('bytes'),
    )
    const stored = JSON.stringify(await redis.hgetall(record as string))
    expect(Buffer.from(JSON.parse(stored).answer, 'base64').toString('latin1')).not.toContain('run')
  })

  it('runs 100 parallel requests once, over two processes', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { send, runs, openOne } = await openGated(database, redisUrl, keyPrefix)
    const other = await openOne()
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        send({ ms: 200 }, 'same', i % 2 === 0 ? {} : { on: other.base, secret: other.key }),
      ),
    )
    expect(runs.count).toBe(1)
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1)
    expect(answers.filter(({ isReplay }) => isReplay)).toHaveLength(99)
  })

  it('refuses another body under the key, and keeps organizations apart', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { send, runs, newKey } = await openGated(database, redisUrl, keyPrefix)
    await send({ ms: 1 }, 'a')
    const reused = await send({ ms: 2 }, 'a')
    expect(reused.status).toBe(422)
    expect(JSON.parse(reused.text).error).toMatchObject({
      code: 'idempotency_key_reuse',
      type: 'invalid_request_error',
    })
    expect(await send({ ms: 1 }, 'a', { secret: await newKey('org-one') })).toMatchObject({
      isReplay: true,
    })
    expect(await send({ ms: 2 }, 'a', { secret: await newKey('org-two') })).toMatchObject({
      status: 201,
      isReplay: false,
    })
    expect(runs.count).toBe(2)
  })

  it('replays a stream with all its events', async ({ database, redisUrl, keyPrefix }) => {
    const { send, runs } = await openGated(database, redisUrl, keyPrefix)
    const first = await send({ mode: 'stream' }, 'a')
    const again = await send({ mode: 'stream' }, 'a')
    expect(again).toMatchObject({ status: 200, isReplay: true, text: first.text })
    expect(again.text).toBe('data: {"run":1}\n\ndata: [DONE]\n\n')
    expect(again.headers.get('content-type')).toMatch(/^text\/event-stream/)
    expect(runs.count).toBe(1)
  })

  it.for([
    ['fail', 503, 2],
    ['limit', 429, 2],
    ['brokenStream', 200, 2],
    ['large', 201, 2],
    ['refuse', 400, 1],
  ] as const)(
    '%s answers %i and runs %i times in two requests',
    async ([mode, status, count], { database, redisUrl, keyPrefix }) => {
      const { send, runs } = await openGated(database, redisUrl, keyPrefix)
      expect((await send({ mode }, 'a')).status).toBe(status)
      expect((await send({ mode }, 'a')).status).toBe(status)
      expect(runs.count).toBe(count)
    },
  )

  it('gives the key free when the client leaves', async ({ database, redisUrl, keyPrefix }) => {
    const { send, runs, base, key } = await openGated(database, redisUrl, keyPrefix)
    const leaving = fetch(`${base}/v1/run`, {
      method: 'POST',
      body: JSON.stringify({ mode: 'hang' }),
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'idempotency-key': 'a',
      },
      signal: AbortSignal.timeout(100),
    }).catch(() => 'left')
    expect(await leaving).toBe('left')
    await expect.poll(() => runs.left).toBe(1)
    expect(await send({ mode: 'hang' }, 'a')).toMatchObject({ status: 201, isReplay: false })
  })

  it.for(['', 'with space', 'ü', 'x'.repeat(256)])(
    'refuses the key %j',
    async (name, { database, redisUrl, keyPrefix }) => {
      const { send, runs } = await openGated(database, redisUrl, keyPrefix)
      const answer = await send({}, name)
      expect(answer.status).toBe(400)
      expect(JSON.parse(answer.text).error).toMatchObject({
        param: 'Idempotency-Key',
        code: 'invalid_idempotency_key',
      })
      expect(runs.count).toBe(0)
    },
  )

  it('is refused while Redis is away, and not missed by requests without it', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { send, post, redis } = await openGated(database, redisUrl, keyPrefix)
    redis.disconnect()
    expect((await send({}, 'a')).status).toBe(503)
    expect((await post('/run', {})).status).toBe(201)
  })

  it('serves forms: the same again is replayed, another one of any length refused', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const gated = await openGated(database, redisUrl, keyPrefix)
    const upload = (text: string) => sendForm(gated, text, 'f')
    expect(await upload('hello')).toEqual({ status: 200, isReplay: false })
    expect(await upload('hello')).toEqual({ status: 200, isReplay: true })
    expect(await upload('hello!')).toEqual({ status: 422, isReplay: false })
    expect(await upload('hallo')).toEqual({ status: 422, isReplay: false })
    const large = 'x'.repeat(600_000)
    const again = (text: string) => sendForm(gated, text, 'large')
    expect(await again(large)).toEqual({ status: 200, isReplay: false })
    expect(await again(large)).toEqual({ status: 200, isReplay: true })
    expect(await again(`${large.slice(1)}y`)).toEqual({ status: 422, isReplay: false })
    expect(gated.runs.count).toBe(2)
  })
})

async function sendForm({ base, key }: Gated, text: string, idempotencyKey: string) {
  const boundary = randomUUID()
  const body = `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\n${text}\r\n--${boundary}--\r\n`
  const answer = await fetch(`${base}/v1/form`, {
    method: 'POST',
    body,
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': `multipart/form-data; boundary=${boundary}`,
      'idempotency-key': idempotencyKey,
    },
  })
  await answer.body?.cancel()
  const isReplay = answer.headers.get('idempotent-replayed') === 'true'
  return { status: answer.status, isReplay }
}
