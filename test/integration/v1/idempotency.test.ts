import { connect } from 'node:net'

import { afterEach, describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { closeGated, formOf, leave, openGated, sendForm } from './gated-routes.ts'

afterEach(closeGated)

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

  it('refuses another body under the key, and keeps organizations and rights apart', async ({
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
    // An answer may hold a secret that was made with more rights.
    for (const isReplay of [false, true]) {
      const secret = await newKey('org-one', ['chat', 'files'])
      expect(await send({ ms: 1 }, 'a', { secret })).toMatchObject({ isReplay })
    }
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

  it.for(['hang', 'slowStream'] as const)(
    'runs on when the client leaves (%s), and answers the next one who asks',
    async (mode, { database, redisUrl, keyPrefix }) => {
      const gated = await openGated(database, redisUrl, keyPrefix)
      const { send, runs, openOne } = gated
      await leave(gated, { mode }, 'a')
      await expect.poll(() => runs.left).toBe(1)
      const other = await openOne()
      const again = await send({ mode }, 'a', { on: other.base, secret: other.key })
      expect(again).toMatchObject({ status: mode === 'hang' ? 201 : 200, isReplay: true })
      expect(again.text).toContain(mode === 'hang' ? '"run":1' : 'data: [DONE]')
      expect(runs.count).toBe(1)
    },
  )

  it('releases the key when the request of a disconnected client fails', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const gated = await openGated(database, redisUrl, keyPrefix)
    await leave(gated, { mode: 'fail', ms: 300 }, 'a')
    expect(await gated.send({ mode: 'fail', ms: 300 }, 'a')).toMatchObject({ isReplay: false })
    expect(gated.runs.count).toBe(2)
  })

  it('keeps nothing of a form whose sender left before its end', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const gated = await openGated(database, redisUrl, keyPrefix)
    const { port } = new URL(gated.base)
    const socket = connect(Number(port), '127.0.0.1')
    const { head, body } = formOf(gated, 'x'.repeat(600_000), 'f')
    socket.write(`POST /v1/form HTTP/1.1\r\nhost: x\r\n${head}\r\n${body.slice(0, 300_000)}`)
    await expect.poll(() => gated.runs.count).toBe(1)
    socket.destroy()
    expect(await sendForm(gated, 'x'.repeat(600_000), 'f')).toEqual({
      status: 200,
      isReplay: false,
    })
    expect(gated.runs.count).toBe(2)
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

  it('is refused while Redis is away, while requests without it are served', async ({
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
