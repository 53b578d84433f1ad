import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import type { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import { queueName } from '#shared/contracts/job.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { JobProducer } from '#shared/queue/producer.ts'
import {
  eventually,
  freshPrefix,
  log,
  openTestSubmitter,
  type PrivateRedis,
  readAll,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
import { startToyWorker, TOY, toyText } from '#test/support/toy-worker.ts'

const ROOT = join(import.meta.dirname, '../../..')

// Known pitfalls of BullMQ; the other test files of this folder hold the rest.
describe('the queues, where BullMQ is known to trip', () => {
  let server: PrivateRedis
  let redis: Redis
  let prefix: string
  let submitter: OpenSubmitter

  beforeEach(async () => {
    server = await startRedis()
    redis = await openRedis(server.url, 'worker', log)
    prefix = freshPrefix()
    submitter = await openTestSubmitter(server.url, prefix, 50)
  })

  afterEach(async () => {
    await submitter.close()
    redis.disconnect()
    await server.close()
  })

  it('wait for no job through BullMQ and listen to no queue events', () => {
    const sources = ['api', 'workers', 'shared'].flatMap((folder) =>
      readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts'))
        .map((name) => readFileSync(join(ROOT, folder, name), 'utf8')),
    )
    const users = sources.filter((text) => /new QueueEvents|\.waitUntilFinished\(/.test(text))
    expect(users).toEqual([])
  })

  it('serve a queue that was opened while Redis was away', async () => {
    await server.kill()
    const queue = submitter.producer.queue(TOY.kind, TOY.id)
    await expect(queue.getJobCounts('waiting')).rejects.toThrow()
    await server.start()
    await eventually(async () => (await redis.ping()) === 'PONG')
    const worker = await startToyWorker(server.url, prefix)
    const ask = async () => readAll(submitter.submit(toyRequest('x', 3))).catch(() => undefined)
    await eventually(async () => (await ask())?.text === toyText(3))
    await worker.stop()
  })

  it('accept model ids with colons and slashes, and ids that consist of digits', async () => {
    expect(queueName('completion', 'org/model:v1')).not.toMatch(/[:/]/)
    const producer = new JobProducer({ redis, keys: queueKeys(prefix), log })
    const request = toyRequest('x', 1)
    const envelope = {
      version: 1,
      jobId: '12345',
      epoch: 1,
      kind: 'completion',
      modelId: 'org/model:v1',
      organizationId: 'org-1',
      replyTo: 'nobody',
      enqueuedAtMs: Date.now(),
      deadlineAtMs: Date.now() + 1000,
      input: request.input,
    } as const
    await producer.enqueue(envelope, 1)
    expect(
      await producer.queue('completion', 'org/model:v1').getJobCountByTypes('prioritized'),
    ).toBe(1)
    await producer.close()
  })

  it('give every job a priority, since one without outranks all others', async () => {
    const abort = new AbortController()
    const reading = readAll(submitter.submit(toyRequest('x', 1, { signal: abort.signal }))).catch(
      () => 'gone',
    )
    const queue = submitter.producer.queue('completion', TOY.id)
    await eventually(async () => (await queue.getJobCountByTypes('prioritized')) === 1)
    expect(await queue.getJobCountByTypes('waiting')).toBe(0)
    const [job] = await queue.getJobs(['prioritized'])
    expect(job?.opts.priority).toBeGreaterThan(0)
    abort.abort()
    await reading
  })

  it('keep no prompt in Redis once its job is answered', async () => {
    const worker = await startToyWorker(server.url, prefix, 2)
    await readAll(submitter.submit(toyRequest('a very private prompt', 3)))
    await eventually(async () => !(await dump(redis)).includes('a very private prompt'))
    await worker.stop()
  })

  it('fail no job and run none twice while the loop is blocked for longer than a lock lives', async () => {
    const worker = await startToyWorker(server.url, prefix, 2)
    let hasBegun = false
    const reading = readAll(submitter.submit(toyRequest('stepMs=20', 100)), () => {
      hasBegun = true
    })
    await eventually(() => hasBegun)
    const until = Date.now() + 3000
    while (Date.now() < until) {
      // Worker, owner and locks share this loop: all of them miss their heartbeats.
    }
    expect(await reading).toMatchObject({ text: toyText(100), results: 1 })
    await worker.stop()
  })

  it('continue after a failover has made their server a replica for some time', async () => {
    const worker = await startToyWorker(server.url, prefix, 2)
    await readAll(submitter.submit(toyRequest('before', 2)))
    const other = await startRedis()
    const { port } = new URL(other.url)
    await redis.replicaof('127.0.0.1', port)
    await readAll(submitter.submit(toyRequest('during', 2))).catch(() => 'unavailable')
    await redis.replicaof('NO', 'ONE')
    const after: string[] = []
    await eventually(async () => {
      const seen = await readAll(submitter.submit(toyRequest('after', 2))).catch(() => undefined)
      if (seen !== undefined) after.push(`${seen.starts} ${seen.results} ${seen.text}`)
      return after.length === 2
    })
    expect(new Set(after)).toEqual(new Set([`1 1 ${toyText(2)}`]))
    await worker.stop()
    await other.close()
  })
})

/** Everything that a Redis holds, as text. */
async function dump(redis: Redis): Promise<string> {
  const texts: string[] = []
  for (const key of await redis.keys('*')) {
    const type = await redis.type(key)
    if (type === 'string') texts.push((await redis.get(key)) ?? '')
    if (type === 'hash') texts.push(JSON.stringify(await redis.hgetall(key)))
    if (type === 'stream') texts.push(JSON.stringify(await redis.xrange(key, '-', '+')))
    if (type === 'list') texts.push((await redis.lrange(key, 0, -1)).join())
  }
  return texts.join('\n')
}
