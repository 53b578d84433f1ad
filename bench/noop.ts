import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'

import { Queue, QueueEvents } from 'bullmq'
import fastify from 'fastify'
import { Redis } from 'ioredis'

import {
  openTestSubmitter,
  readAll,
  spawnReady,
  spawnToyWorker,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { ratePerSecond } from './support/people.ts'
import { quantile } from './support/quantile.ts'

/** One measured side of the comparison. */
interface Side {
  /** Runs one job to its end; each of the concurrent clients waits for its own. */
  run(index: number): Promise<unknown>
}

const ROUNDS = 12
const JOBS_PER_ROUND = 150
const WARM_UP = 1000 // until both sides run compiled code, as a service does
const CONCURRENCY = 64
const JOBS_EACH = 20
const COUNTED_JOBS_EACH = 5

/**
 * A job that does nothing: through HTTP, queue, worker and reply stream, against BullMQ's own `add`
 * → `waitUntilFinished`. Rounds alternate, so that both see the same machine. One at a time, then
 * 64 at once; and the commands that reach Redis for each of the latter.
 */
export async function benchNoop(): Promise<readonly Figure[]> {
  const redis = await startRedis()
  const prefix = `bench-${randomBytes(4).toString('hex')}`
  const closers: (() => Promise<unknown>)[] = [() => redis.close()]
  try {
    const ours = await openOurs(redis.url, prefix, closers)
    const theirs = await openTheirs(redis.url, prefix, closers)
    const times = await timeBoth(ours, theirs)
    const path = 'no-op job through HTTP, queue and worker'
    const latency = (q: number, name: string): Figure => ({
      name: `${path} ÷ BullMQ add → waitUntilFinished, ${name}`,
      unit: 'ms',
      ours: quantile(times.ours, q),
      theirs: quantile(times.theirs, q),
      target: { atMost: 1 },
    })
    const rates = await alternate(
      () => jobsPerSecond(ours),
      () => jobsPerSecond(theirs),
    )
    return [
      latency(0.5, 'p50'),
      latency(0.99, 'p99'),
      {
        name: `${path} ÷ BullMQ alone, ${CONCURRENCY} in flight`,
        unit: 'jobs/s',
        ...rates,
        target: { atLeast: 0.6 },
      },
      {
        name: `commands that reach Redis for each ${path}, ${CONCURRENCY} in flight`,
        unit: 'commands',
        ours: await commandsPerJob(redis.url, ours),
        theirs: 1,
        target: { atMost: 8 },
      },
    ]
  } finally {
    for (const close of closers.toReversed()) await close()
  }
}

async function timeBoth(ours: Side, theirs: Side): Promise<{ ours: number[]; theirs: number[] }> {
  const times = { ours: [] as number[], theirs: [] as number[] }
  for (const side of [ours, theirs]) for (let i = 0; i < WARM_UP; i += 1) await side.run(0)
  for (let round = 0; round < ROUNDS; round += 1) {
    const pairs = [
      [ours, times.ours],
      [theirs, times.theirs],
    ] as const
    for (const [side, own] of round % 2 === 0 ? pairs : pairs.toReversed()) {
      for (let i = 0; i < JOBS_PER_ROUND; i += 1) own.push(await timeOf(side))
    }
  }
  return times
}

function jobsPerSecond(side: Side): Promise<number> {
  return ratePerSecond(CONCURRENCY, JOBS_EACH, async (index) => void (await side.run(index)))
}

/** Counts the commands of clients, without the calls that a script makes inside Redis. */
async function commandsPerJob(url: string, side: Side): Promise<number> {
  const client = new Redis(url)
  const watcher = await client.monitor()
  let count = 0
  watcher.on('monitor', (_time: string, _args: readonly string[], source: string) => {
    if (source !== 'lua') count += 1
  })
  await ratePerSecond(CONCURRENCY, COUNTED_JOBS_EACH, async (index) => void (await side.run(index)))
  watcher.disconnect()
  client.disconnect()
  return count / (CONCURRENCY * COUNTED_JOBS_EACH)
}

async function openOurs(
  url: string,
  prefix: string,
  closers: (() => Promise<unknown>)[],
): Promise<Side> {
  const submitter = await openTestSubmitter(url, prefix)
  closers.push(() => submitter.close())
  const worker = await spawnToyWorker(url, prefix)
  closers.push(async () => worker.kill('SIGKILL'))
  const app = fastify()
  app.post('/noop', async () => readAll(submitter.submit(toyRequest('noop', 0))))
  const address = new URL(await app.listen({ port: 0, host: '127.0.0.1' }))
  closers.push(() => app.close())
  const sockets: Socket[] = []
  for (let index = 0; index < CONCURRENCY; index += 1) {
    const socket = connect({ port: Number(address.port), host: address.hostname, noDelay: true })
    await once(socket, 'connect')
    sockets.push(socket)
    closers.push(async () => socket.destroy())
  }
  return { run: (index) => post(sockets[index] as Socket) }
}

async function openTheirs(
  url: string,
  prefix: string,
  closers: (() => Promise<unknown>)[],
): Promise<Side> {
  const name = 'bullmq-noop'
  const connection = new Redis(url, { maxRetriesPerRequest: null })
  closers.push(async () => connection.disconnect())
  const queue = new Queue(name, { connection, prefix })
  queue.setMaxListeners(0) // one for each job that is waited for
  const events = new QueueEvents(name, { connection, prefix })
  const script = join(import.meta.dirname, 'support/plain-worker.ts')
  const worker = await spawnReady(script, [url, prefix, name])
  closers.push(async () => worker.kill('SIGKILL'))
  closers.push(() => Promise.all([events.close(), queue.close()]))
  await events.waitUntilReady()
  const options = { removeOnComplete: { count: 1000 }, removeOnFail: { count: 1000 } }
  return {
    run: async () => (await queue.add('noop', {}, options)).waitUntilFinished(events, 10_000),
  }
}

/** The lightest possible client, one socket, so that the service dominates the measurement. */
function post(socket: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    let answer = ''
    const onData = (chunk: Buffer): void => {
      answer += chunk.toString()
      const headersEnd = answer.indexOf('\r\n\r\n')
      const length = Number(/content-length: (\d+)/i.exec(answer)?.[1])
      if (headersEnd < 0 || answer.length < headersEnd + 4 + length) return
      socket.off('data', onData)
      const isAnswer = answer.startsWith('HTTP/1.1 200') && answer.includes('"results":1')
      if (isAnswer) resolve()
      else reject(new Error(`an unexpected answer: ${answer.slice(0, 300)}`))
    }
    socket.on('data', onData)
    socket.write('POST /noop HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n')
  })
}

async function timeOf(side: Side): Promise<number> {
  const startedAt = performance.now()
  await side.run(0)
  return performance.now() - startedAt
}
