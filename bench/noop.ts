import { randomBytes } from 'node:crypto'
import { Agent, request } from 'node:http'
import { join } from 'node:path'

import { Queue, QueueEvents } from 'bullmq'
import fastify from 'fastify'

import {
  log,
  openTestSubmitter,
  readAll,
  spawnReady,
  spawnToyWorker,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
import { openRedis } from '#shared/queue/connection.ts'

import type { Figure } from './figure.ts'

/** One measured side of the comparison. */
interface Side {
  readonly name: string
  run(): Promise<unknown>
}

const ROUNDS = 10
const JOBS_PER_ROUND = 100
const WARM_UP = 100

/**
 * A job that does nothing, one at a time: through HTTP, queue, worker and reply stream, against
 * BullMQ's own `add` → `waitUntilFinished`. Rounds alternate, so that both see the same machine.
 */
export async function benchNoop(): Promise<Figure> {
  const redis = await startRedis()
  const prefix = `bench-${randomBytes(4).toString('hex')}`
  const closers: (() => Promise<unknown>)[] = [() => redis.close()]
  try {
    const ours = await openOurs(redis.url, prefix, closers)
    const theirs = await openTheirs(redis.url, prefix, closers)
    const times = new Map<string, number[]>()
    for (const side of [ours, theirs]) for (let i = 0; i < WARM_UP; i += 1) await side.run()
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const side of round % 2 === 0 ? [ours, theirs] : [theirs, ours]) {
        const own = times.get(side.name) ?? []
        times.set(side.name, own)
        for (let i = 0; i < JOBS_PER_ROUND; i += 1) own.push(await timeOf(side))
      }
    }
    return {
      name: 'no-op job through HTTP, queue and worker ÷ BullMQ add → waitUntilFinished, p50',
      unit: 'ms',
      ours: quantile(times.get(ours.name) ?? [], 0.5),
      theirs: quantile(times.get(theirs.name) ?? [], 0.5),
      target: { atMost: 1 },
    }
  } finally {
    for (const close of closers.toReversed()) await close()
  }
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
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  closers.push(async () => agent.destroy())
  const address = await app.listen({ port: 0, host: '127.0.0.1' })
  closers.push(() => app.close())
  return {
    name: 'HTTP to worker and back',
    run: () => post(`${address}/noop`, agent),
  }
}

async function openTheirs(
  url: string,
  prefix: string,
  closers: (() => Promise<unknown>)[],
): Promise<Side> {
  const name = 'bullmq-noop'
  const connection = await openRedis(url, 'worker', log)
  closers.push(async () => connection.disconnect())
  const queue = new Queue(name, { connection, prefix })
  const events = new QueueEvents(name, { connection, prefix })
  const script = join(import.meta.dirname, 'support/plain-worker.ts')
  const worker = await spawnReady(script, [url, prefix, name])
  closers.push(async () => worker.kill('SIGKILL'))
  closers.push(() => Promise.all([events.close(), queue.close()]))
  await events.waitUntilReady()
  const options = { removeOnComplete: { count: 1000 }, removeOnFail: { count: 1000 } }
  return {
    name: 'BullMQ add to waitUntilFinished',
    run: async () => (await queue.add('noop', {}, options)).waitUntilFinished(events, 10_000),
  }
}

/** The lightest client of Node: what is measured is the service. */
function post(url: string, agent: Agent): Promise<string> {
  return new Promise((resolve, reject) => {
    const call = request(url, { method: 'POST', agent }, (response) => {
      let body = ''
      response.on('data', (chunk: Buffer) => {
        body += chunk.toString()
      })
      response.on('end', () => resolve(body))
    })
    call.on('error', reject)
    call.end()
  })
}

async function timeOf(side: Side): Promise<number> {
  const startedAt = performance.now()
  await side.run()
  return performance.now() - startedAt
}

function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(Math.floor(sorted.length * q), sorted.length - 1)] ?? Number.NaN
}
