import { randomUUID } from 'node:crypto'

import type { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import type { Reply, ReplyBody } from '#shared/contracts/reply.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { ReplyInbox } from '#shared/queue/reply-inbox.ts'
import { type ReplySource, ReplyWriter } from '#shared/queue/reply-writer.ts'
import { freshPrefix, log, type PrivateRedis, startRedis } from '#test/support/queue.ts'

describe('the reply writer', () => {
  let server: PrivateRedis
  let redis: Redis
  let writer: ReplyWriter
  let stream: string

  beforeEach(async () => {
    server = await startRedis()
    redis = await openRedis(server.url, 'replies', log)
    writer = new ReplyWriter(redis, log, () => {})
    stream = `${freshPrefix()}:replies`
  })

  afterEach(async () => {
    writer.close()
    redis.disconnect()
    await server.close()
  })

  const replySource = (jobId: string): ReplySource => ({
    jobId,
    epoch: 1,
    runId: randomUUID(),
    seq: 0,
  })
  const token = (tokenId: number): ReplyBody => ({
    type: 'delta',
    deltas: [{ index: 0, text: `"${tokenId}"`, tokenIds: [tokenId] }],
  })
  const started: ReplyBody = { type: 'started', workerId: 'w', promptTokens: 1 }
  const frames = async (): Promise<Reply[][]> =>
    (await redis.xrange(stream, '-', '+')).map(([, [, text = '']]) => JSON.parse(text))
  const tokensOf = (reply: Reply | undefined): unknown =>
    reply?.type === 'delta' ? reply.deltas.flatMap(({ tokenIds }) => tokenIds) : reply?.type

  it('sends the replies of one turn as one frame, and the deltas of each run as one reply', async () => {
    const [one, other] = [replySource('one'), replySource('other')]
    writer.push(stream, one, started)
    for (const tokenId of [1, 2, 3]) {
      writer.push(stream, one, token(tokenId))
      writer.push(stream, other, token(10 * tokenId))
    }
    await writer.flushed(stream)
    const [frame, ...more] = await frames()
    expect(more).toEqual([])
    expect(frame?.map((reply) => [reply.jobId, reply.seq, tokensOf(reply)])).toEqual([
      ['one', 1, 'started'],
      ['one', 2, [1, 2, 3]],
      ['other', 1, [10, 20, 30]],
    ])
  })

  it('numbers the replies of a run without a gap, joined or not', async () => {
    const one = replySource('one')
    for (let tokenId = 0; tokenId < 200; tokenId += 1) {
      writer.push(stream, one, token(tokenId))
      if (tokenId % 50 === 0) await writer.flushed(stream)
    }
    writer.push(stream, one, { type: 'yielded' })
    await writer.flushed(stream)
    const replies = (await frames()).flat()
    expect(replies.map(({ seq }) => seq)).toEqual(replies.map((_, index) => index + 1))
    expect(replies.at(-1)?.type).toBe('yielded')
    expect(replies.slice(0, -1).flatMap(tokensOf as (reply: Reply) => unknown[])).toEqual(
      Array.from({ length: 200 }, (_, tokenId) => tokenId),
    )
  })

  it('does not join deltas across another reply of the run, nor with sent ones', async () => {
    const one = replySource('one')
    writer.push(stream, one, token(1))
    writer.push(stream, one, { type: 'progress', step: 1, steps: 2 })
    writer.push(stream, one, token(2))
    // The frame is on its way when the next token comes.
    await Promise.resolve()
    writer.push(stream, one, token(3))
    await writer.flushed(stream)
    expect((await frames()).map((frame) => frame.map(tokensOf))).toEqual([
      [[1], 'progress', [2]],
      [[3]],
    ])
  })

  it('delays a token that follows a frame, but neither a beginning nor an end', async () => {
    const one = replySource('one')
    // However long the answers of Redis take, no time passes between two frames.
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now())
    writer.push(stream, one, started)
    // Replies sent at once are in the stream before this reads it: both use one connection.
    const framesNow = async () => {
      await Promise.resolve()
      return redis.xlen(stream)
    }
    expect(await framesNow()).toBe(1)
    await writer.flushed(stream)
    writer.push(stream, one, { type: 'yielded' })
    expect(await framesNow()).toBe(2)
    await writer.flushed(stream)
    writer.push(stream, one, token(1))
    expect(await framesNow()).toBe(2)
    clock.mockRestore()
    await expect.poll(() => redis.xlen(stream)).toBe(3)
  })

  it('repeats a frame that Redis did not accept, before those after it', async () => {
    let refusals = 2
    const refusing = new Proxy(redis, {
      get(target, name) {
        if (name !== 'pipeline' && name !== 'xadd') return Reflect.get(target, name)
        if (refusals === 0) return Reflect.get(target, name).bind(target)
        refusals -= 1
        throw new Error('Redis is away')
      },
    })
    const patient = new ReplyWriter(refusing, log, () => {})
    const one = replySource('one')
    patient.push(stream, one, started)
    await Promise.resolve()
    patient.push(stream, one, token(1))
    const isWritten = patient.flushed(stream)
    patient.push(stream, one, { type: 'yielded' })
    await Promise.all([isWritten, patient.flushed(stream)])
    const replies = (await frames()).flat()
    expect(replies.map(tokensOf)).toEqual(['started', [1], 'yielded'])
    patient.close()
  })

  it('splits replies that are too large for one frame, and lets the stream expire', async () => {
    const one = replySource('one')
    for (let step = 1; step <= 600; step += 1) {
      writer.push(stream, one, { type: 'progress', step, steps: 600 })
    }
    await writer.flushed(stream)
    expect((await frames()).map((frame) => frame.length)).toEqual([512, 88])
    expect(await redis.pttl(stream)).toBeGreaterThan(0)
  })

  it('drops the replies of an owner of which too much waits, and reports it', async () => {
    const abandoned: string[] = []
    const bounded = new ReplyWriter(redis, log, (replyTo) => abandoned.push(replyTo))
    const one = replySource('one')
    const text = 'x'.repeat(16 * 1024 ** 2)
    for (let step = 1; step <= 6; step += 1) {
      bounded.push(stream, one, { type: 'progress', step, steps: 6, text })
    }
    expect(abandoned).toEqual([stream])
    await bounded.flushed(stream)
    expect(await redis.xlen(stream)).toBe(0)
    bounded.close()
  })

  it('takes a large result, and refuses one too large without dropping other replies', async () => {
    const abandoned: string[] = []
    const bounded = new ReplyWriter(redis, log, (replyTo) => abandoned.push(replyTo))
    const [one, other] = [replySource('one'), replySource('other')]
    const progress = (text: string): ReplyBody => ({ type: 'progress', step: 1, steps: 1, text })
    expect(bounded.push(stream, other, started)).toBe(true)
    expect(bounded.push(stream, one, progress('x'.repeat(45_000_000)))).toBe(true)
    expect(bounded.push(stream, one, progress('x'.repeat(48 * 1024 ** 2)))).toBe(false)
    expect(bounded.push(stream, one, { type: 'yielded' })).toBe(true)
    await bounded.flushed(stream)
    expect((await frames()).flat().map((reply) => [reply.jobId, reply.seq])).toEqual([
      ['other', 1],
      ['one', 1],
      ['one', 2],
    ])
    expect(abandoned).toEqual([])
    bounded.close()
  })

  it.each([
    ['9999999999999-5', '9999999999999-4'],
    ['9999999999999-5', '9999999999998-9'],
  ])('is read from the beginning when its ids start lower than %s, at %s', async (last, lower) => {
    const received: string[] = []
    const reader = await openRedis(server.url, 'replies', log)
    const inbox = new ReplyInbox({ reader, redis, keys: queueKeys('p'), instanceId: 'api', log })
    const frame = (tokenId: number) =>
      JSON.stringify([{ ...replySource('job'), seq: tokenId, ...token(tokenId) }])
    inbox.open('job', (reply) => received.push(String(tokensOf(reply))))
    await inbox.start()
    await redis.xadd(inbox.replyTo, last, 'f', frame(1))
    await expect.poll(() => received).toEqual(['1'])
    await redis.del(inbox.replyTo)
    await redis.xadd(inbox.replyTo, lower, 'f', frame(2))
    await expect.poll(() => received).toEqual(['1', '2'])
    await inbox.close()
    reader.disconnect()
  })
})
