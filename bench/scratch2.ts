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
const redis = await startRedis()
const prefix = `bench-${randomBytes(4).toString('hex')}`
const submitter = await openTestSubmitter(redis.url, prefix)
const worker = await spawnToyWorker(redis.url, prefix)
const plain = await spawnReady(join(import.meta.dirname, 'support/plain-worker.ts'), [
  redis.url,
  prefix,
  'bullmq-noop',
])
const app = fastify()
app.post('/noop', async () => readAll(submitter.submit(toyRequest('noop', 0))))
app.post('/empty', async () => ({ text: '', starts: 1, results: 1, longestGapMs: 0 }))
const agent = new Agent({ keepAlive: true, maxSockets: 1 })
const address = await app.listen({ port: 0, host: '127.0.0.1' })
const connection = await openRedis(redis.url, 'worker', log)
const queue = new Queue('bullmq-noop', { connection, prefix })
const events = new QueueEvents('bullmq-noop', { connection, prefix })
await events.waitUntilReady()
const post = (path: string) =>
  new Promise((res, rej) => {
    const c = request(address + path, { method: 'POST', agent }, (r) => {
      let b = ''
      r.on('data', (x) => (b += x))
      r.on('end', () => res(b))
    })
    c.on('error', rej)
    c.end()
  })
const o = { removeOnComplete: { count: 1000 }, removeOnFail: { count: 1000 } }
const sides: Record<string, () => Promise<unknown>> = {
  http: () => post('/noop'),
  direct: () => readAll(submitter.submit(toyRequest('noop', 0))),
  empty: () => post('/empty'),
  ping: () => connection.ping(),
  bull: async () => (await queue.add('noop', {}, o)).waitUntilFinished(events, 10000),
  bullPrio: async () =>
    (await queue.add('noop', {}, { ...o, priority: 1 })).waitUntilFinished(events, 10000),
}
await connection.config('RESETSTAT')
const times: Record<string, number[]> = {}
const only = process.argv[2]?.split(',') ?? Object.keys(sides)
const rounds = Number(process.argv[3] ?? 10)
for (const n of only) for (let i = 0; i < 200; i++) await sides[n]!()
for (let r = 0; r < rounds; r++)
  for (const n of r % 2 ? only : only.toReversed())
    for (let i = 0; i < 100; i++) {
      const t = performance.now()
      await sides[n]!()
      ;(times[n] ??= []).push(performance.now() - t)
    }
const q = (v: number[], p: number) =>
  v.toSorted((a, b) => a - b)[Math.floor(v.length * p)]!.toFixed(3)
console.log(
  only
    .map((n) => `${n} p10 ${q(times[n]!, 0.1)} p50 ${q(times[n]!, 0.5)} p99 ${q(times[n]!, 0.99)}`)
    .join('\n'),
)
for (const l of (await connection.info('commandstats')).split('\n')) {
  const m = /cmdstat_([^:]+):calls=(\d+),usec=(\d+)/.exec(l)
  if (m && Number(m[2]) > 300)
    console.log(m[1], m[2], 'us/call', (Number(m[3]) / Number(m[2])).toFixed(1))
}
worker.kill('SIGTERM')
await worker.exited
plain.kill('SIGKILL')
await redis.close()
process.exit(0)
