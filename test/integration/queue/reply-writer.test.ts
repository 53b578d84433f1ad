import { randomUUID } from 'node:crypto'

import type { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import type { Reply, ReplyBody } from '#shared/contracts/reply.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { ReplyWriter, type Speaker } from '#shared/queue/reply-writer.ts'
import { freshPrefix, log, startRedis, type PrivateRedis } from '#test/support/queue.ts'

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

  const speaker = (jobId: string): Speaker => ({ jobId, epoch: 1, runId: randomUUID(), seq: 0 })
  const token = (tokenId: number): ReplyBody => ({
    type: 'delta',
    deltas: [{ index: 0, text: `"${tokenId}"`, tokenIds: [tokenId] }],
  })
  const started: ReplyBody = { type: 'started', workerId: 'w', promptTokens: 1 }
  const frames = async (): Promise<Reply[][]> =>
    (await redis.xrange(stream, '-', '+')).map(([, [, text = '']]) => JSON.parse(text))
  const tokensOf = (reply: Reply | undefined): unknown =>
    reply?.type === 'delta' ? reply.deltas.flatMap(({ tokenIds }) => tokenIds) : reply?.type

  it('sends what is said in one go as one frame, with the deltas of each run as one reply', async () => {
    const [one, other] = [speaker('one'), speaker('other')]
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

  it('numbers the replies of a run without a gap, whatever was joined', async () => {
    const one = speaker('one')
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
})
