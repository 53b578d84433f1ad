import { Queue } from 'bullmq'
import type { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import { CancelledError } from '#shared/errors.ts'
import { checkRedis, openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { listWorkers } from '#shared/queue/liveness.ts'
import type { PrivateRedis } from '#test/support/queue.ts'
import {
  eventually,
  freshPrefix,
  log,
  openTestSubmitter,
  readAll,
  readToyFrame,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
import { startToyWorker, TOY, toyText } from '#test/support/toy-worker.ts'

describe('the queues', () => {
  let server: PrivateRedis
  let redis: Redis
  let prefix: string
  let submitter: OpenSubmitter
  let workers: Awaited<ReturnType<typeof startToyWorker>>[]

  const startWorker = async (slots: number, slotsNow?: number): Promise<void> => {
    workers.push(await startToyWorker(server.url, prefix, slots, undefined, slotsNow))
  }
  const busySlots = async (): Promise<number> => {
    const heartbeats = await listWorkers(redis, queueKeys(prefix))
    return heartbeats.reduce((sum, { queues }) => sum + (queues[0]?.active ?? 0), 0)
  }

  /** Waits for a frame of a stream; reading blocks, so that none is trimmed before it was seen. */
  const frameWith = async (stream: string, type: string): Promise<void> => {
    const reader = redis.duplicate()
    let lastId = '0'
    for (let isSeen = false; !isSeen; ) {
      const answer = await reader.xreadBuffer('BLOCK', 1000, 'STREAMS', stream, lastId)
      const frames = answer?.[0]?.[1] ?? []
      lastId = frames.at(-1)?.[0].toString() ?? lastId
      const replies = frames.flatMap(([, fields]) => readToyFrame(stream, fields))
      isSeen = replies.some((reply) => reply.type === type)
    }
    reader.disconnect()
  }

  beforeEach(async () => {
    server = await startRedis()
    redis = await openRedis(server.url, 'worker', log)
    prefix = freshPrefix()
    submitter = await openTestSubmitter(server.url, prefix, 5)
    workers = []
  })

  afterEach(async () => {
    await submitter.close()
    for (const worker of workers) await worker.stop()
    redis.disconnect()
    await server.close()
  })

  it('refuse a job beyond their depth at once and say when to retry', async () => {
    const abort = new AbortController()
    const waiting = Array.from({ length: 5 }, () =>
      readAll(submitter.submit(toyRequest('x', 1, { signal: abort.signal }))).catch(() => 'gone'),
    )
    const thrown = await readAll(submitter.submit(toyRequest('x', 1))).catch((e: unknown) => e)
    expect(thrown).toMatchObject({ kind: 'overloaded', code: 'server_is_overloaded' })
    expect(thrown).toMatchObject({ retryAfterSeconds: expect.any(Number) })
    abort.abort()
    expect(await Promise.all(waiting)).toEqual(Array(5).fill('gone'))
  })

  it('hold a bounded number of bytes of inputs, and room for other organizations', async () => {
    const small = await openTestSubmitter(server.url, prefix, 1000, [], 4_000_000)
    const abort = new AbortController()
    const text = 'x'.repeat(100_000)
    const refusals: unknown[] = []
    const send = (organizationId: string) =>
      readAll(small.submit(toyRequest(text, 1, { signal: abort.signal, organizationId }))).catch(
        (error: unknown) => refusals.push(error),
      )
    const waiting = async (): Promise<number> =>
      small.producer.queue('completion', 'toy').getPrioritizedCount()
    const sent = Array.from({ length: 100 }, () => send('noisy'))
    await eventually(async () => refusals.length + (await waiting()) === 100)
    expect(refusals[0]).toMatchObject({ kind: 'rateLimited', retryAfterSeconds: 5 })
    // Half of the bytes are free for others, however many of one organization there are.
    expect(await waiting()).toBe(20)
    const others = Array.from({ length: 4 }, (_, at) => send(`other ${at}`))
    await eventually(async () => (await waiting()) === 24)
    const huge = readAll(small.submit(toyRequest('x'.repeat(2_000_001), 1)))
    await expect(huge).rejects.toMatchObject({ kind: 'tooLarge', code: 'request_too_large' })
    abort.abort()
    await Promise.all([...sent, ...others])
    const again = new AbortController()
    const next = readAll(small.submit(toyRequest(text, 1, { signal: again.signal })))
    await eventually(async () => (await waiting()) === 1)
    again.abort()
    await expect(next).rejects.toThrow(CancelledError)
    await small.close()
  })

  it('accept as many jobs of a burst as they have room for', async () => {
    const abort = new AbortController()
    const { signal } = abort
    const outcomes: string[] = []
    const burst = Array.from({ length: 40 }, () =>
      readAll(submitter.submit(toyRequest('x', 1, { signal })))
        .catch((error: Error & { code?: string }) => error.code ?? error.name)
        .then((outcome) => outcomes.push(`${outcome}`)),
    )
    const queue = submitter.producer.queue('completion', 'toy')
    await eventually(() => outcomes.length === 35)
    expect(new Set(outcomes)).toEqual(new Set(['server_is_overloaded']))
    // Those that were accepted may still be on their way.
    await expect.poll(() => queue.getPrioritizedCount()).toBe(5)
    abort.abort()
    await Promise.all(burst)
  })

  it('accept the first job of an organization while another one fills them', async () => {
    const abort = new AbortController()
    const send = (organizationId: string) =>
      readAll(submitter.submit(toyRequest('x', 1, { signal: abort.signal, organizationId }))).catch(
        (error: unknown) => error,
      )
    const queue = submitter.producer.queue('completion', 'toy')
    const noisy = Array.from({ length: 5 }, () => send('noisy'))
    await eventually(async () => (await queue.getPrioritizedCount()) === 5)
    expect(await send('noisy')).toMatchObject({ code: 'server_is_overloaded' })
    const quiet = send('quiet')
    await eventually(async () => (await queue.getPrioritizedCount()) === 6)
    expect(await send('quiet')).toMatchObject({ code: 'server_is_overloaded' })
    abort.abort()
    await Promise.all([...noisy, quiet])
  })

  it('discard a waiting job whose client left: it never runs', async () => {
    const abort = new AbortController()
    const reading = readAll(submitter.submit(toyRequest('x', 1, { signal: abort.signal })))
    const queue = submitter.producer.queue('completion', 'toy')
    await eventually(async () => (await queue.getPrioritizedCount()) === 1)
    abort.abort()
    await expect(reading).rejects.toThrow(CancelledError)
    await eventually(async () => (await queue.getPrioritizedCount()) === 0)
    // In no state, so that no worker can take it.
    const counts = await queue.getJobCounts()
    expect(Object.entries(counts).filter(([, count]) => count > 0)).toEqual([])
    expect(await queue.getJobs()).toEqual([])
  })

  it.each(['hang', 'stepMs=5', 'slowStart'])(
    'free the slot of a running job (%s)',
    async (text) => {
      await startWorker(2)
      const abort = new AbortController()
      const reading = readAll(submitter.submit(toyRequest(text, 100_000, { signal: abort.signal })))
      await eventually(async () => (await busySlots()) === 1)
      abort.abort()
      await expect(reading).rejects.toThrow(CancelledError)
      await eventually(async () => (await busySlots()) === 0)
    },
  )

  it('free the slot when the consumer merely stops reading', async () => {
    await startWorker(2)
    for await (const event of submitter.submit(toyRequest('stepMs=5', 100_000))) {
      if (event.type === 'delta') break
    }
    await eventually(async () => (await busySlots()) === 0)
  })

  it('stop a job whose owner is gone without having cancelled it', async () => {
    await startWorker(2)
    const other = await openTestSubmitter(server.url, prefix)
    readAll(other.submit(toyRequest('hang', 1))).catch(() => {
      // Its owner is closed before it ends.
    })
    await eventually(async () => (await busySlots()) === 1)
    // Its heartbeat ends, and no cancel is announced.
    await other.close()
    await eventually(async () => (await busySlots()) === 0)
  })

  it('hand a job back to an owner that seemed gone and was not', async () => {
    await startWorker(2)
    const setOwner = (...keys: string[]) =>
      redis.call('ACL', 'SETUSER', 'owner', 'on', 'nopass', '&*', '+@all', 'resetkeys', ...keys)
    await setOwner('~*')
    const others = await redis.keys(`${prefix}:replies:*:owner`)
    const owner = await openTestSubmitter(server.url.replace('//', '//owner:none@'), prefix)
    const heartbeats = await redis.keys(`${prefix}:replies:*:owner`)
    const heartbeat = heartbeats.find((key) => !others.includes(key)) ?? ''
    const running = readAll(owner.submit(toyRequest('stepMs=20', 300)))
    await eventually(async () => (await busySlots()) === 1)
    // Redis refuses the heartbeat: one that is only deleted each time may be seen all the same,
    // since the owner and the worker of this process send theirs at the same moments.
    await setOwner('~*[^r]', `~${prefix}:completion*`)
    await redis.del(heartbeat)
    const stream = heartbeat.replace(/:owner$/, '')
    await frameWith(stream, 'yielded')
    await setOwner('~*')
    expect((await running).text).toBe(toyText(300))
    expect(await redis.pttl(stream)).toBeGreaterThan(0)
    await owner.close()
  })

  it('deal the turns around between organizations', async () => {
    const order: string[] = []
    const submit = (organizationId: string) =>
      readAll(wide.submit(toyRequest('x', 1, { organizationId }))).then(() =>
        order.push(organizationId),
      )
    const wide = await openTestSubmitter(server.url, prefix)
    const queue = wide.producer.queue('completion', 'toy')
    const all: Promise<number>[] = []
    for (let i = 0; i < 20; i += 1) all.push(submit('noisy'))
    await eventually(async () => (await queue.getPrioritizedCount()) === 20)
    all.push(submit('quiet'))
    await eventually(async () => (await queue.getPrioritizedCount()) === 21)
    await startWorker(1)
    await Promise.all(all)
    await wide.close()
    expect(order.indexOf('quiet')).toBeLessThanOrEqual(2)
  })

  it('stop the run of a client that does not read, and go on when it does', async () => {
    await startWorker(2)
    const stream = submitter.submit(toyRequest('flood', 4000))
    await stream.next()
    await eventually(async () => (await busySlots()) === 0)
    let text = ''
    for await (const event of stream) {
      if (event.type === 'delta') text += event.deltas.map((delta) => delta.text).join('')
    }
    expect(text).toBe(toyText(4000))
  })

  it('refuse a result that is too large by itself, and leave other jobs alone', async () => {
    await startWorker(2)
    const other = readAll(submitter.submit(toyRequest('stepMs=20', 100)))
    await expect(readAll(submitter.submit(toyRequest('huge', 1)))).rejects.toMatchObject({
      kind: 'invalidRequest',
      code: 'answer_too_large',
    })
    expect(await other).toMatchObject({ text: toyText(100) })
  })

  it('run a job once even if it is delivered twice', async () => {
    const reading = readAll(submitter.submit(toyRequest('stepMs=2', 50)))
    const queue = submitter.producer.queue('completion', 'toy')
    await eventually(async () => (await queue.getPrioritizedCount()) === 1)
    const [job] = await queue.getPrioritized()
    // A second entry with the same envelope, as a failover may leave behind.
    const twin = new Queue(queue.name, { connection: redis, prefix })
    await twin.add('completion', job?.data, {
      jobId: 'twin-1',
      priority: 1,
      removeOnComplete: true,
    })
    await startWorker(4)
    await startWorker(4)
    const seen = await reading
    expect(seen).toMatchObject({ text: toyText(50), starts: 1, results: 1 })
    await twin.close()
  })

  it('refuse a Redis that may evict jobs', async () => {
    await expect(checkRedis(redis)).resolves.toBeUndefined()
    await redis.config('SET', 'maxmemory-policy', 'allkeys-lru')
    await expect(checkRedis(redis)).rejects.toThrow('noeviction')
  })

  it('answer at once that they are unavailable while Redis is away', async () => {
    await startWorker(1)
    await server.kill()
    const thrown = await readAll(submitter.submit(toyRequest('x', 1))).catch((e: unknown) => e)
    expect(thrown).toMatchObject({ kind: 'overloaded', code: 'service_unavailable' })
    await server.start()
    await eventually(async () => {
      const seen = await readAll(submitter.submit(toyRequest('x', 3))).catch(() => undefined)
      return seen?.text === toyText(3)
    })
  })

  it('give a worker more jobs than slots while its model has memory for them', async () => {
    await startWorker(2, 4)
    const abort = new AbortController()
    const submit = () =>
      readAll(submitter.submit(toyRequest('hang', 1, { signal: abort.signal }))).catch(() => 'gone')
    const running = Array.from({ length: 4 }, submit)
    await eventually(async () => (await busySlots()) === 4)
    running.push(submit())
    const waiting = queueKeys(prefix).bull('completion', TOY.id, 'prioritized')
    await eventually(async () => (await redis.zcard(waiting)) === 1)
    expect(await busySlots()).toBe(4)
    abort.abort()
    expect(await Promise.all(running)).toEqual(running.map(() => 'gone'))
  })

  it('list their workers with the models that they serve', async () => {
    await startWorker(3)
    await eventually(async () => {
      const [heartbeat] = await listWorkers(redis, queueKeys(prefix))
      return heartbeat?.queues[0]?.isReady === true
    })
    const [heartbeat] = await listWorkers(redis, queueKeys(prefix))
    expect(heartbeat).toMatchObject({ pid: process.pid, queues: [{ modelId: TOY.id, slots: 3 }] })
  })
})
