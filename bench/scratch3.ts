// interleaved A/B of two settings of an env variable: node scratch3.ts VAR a b
import { randomBytes } from 'node:crypto'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { Queue, QueueEvents } from 'bullmq'
import { Redis } from 'ioredis'
import fastify from 'fastify'
import {
  openTestSubmitter,
  readAll,
  spawnReady,
  spawnToyWorker,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
const redis = await startRedis()
const [variable = 'X', ...values] = process.argv.slice(2)
const prefix = `bench-${randomBytes(4).toString('hex')}`
const kills: (() => void)[] = []
const sides: Record<string, () => Promise<unknown>> = {}
for (const value of values) {
  process.env[variable] = value
  const p = `${prefix}-${value}`
  const submitter = await openTestSubmitter(redis.url, p)
  const worker = await spawnToyWorker(redis.url, p)
  kills.push(() => worker.kill('SIGKILL'))
  const app = fastify()
  app.post('/noop', async () => readAll(submitter.submit(toyRequest('noop', 0))))
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const address = await app.listen({ port: 0, host: '127.0.0.1' })
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
  sides[`http ${value}`] = () => post('/noop')
  sides[`direct ${value}`] = () => readAll(submitter.submit(toyRequest('noop', 0)))
}
const plain = await spawnReady(join(import.meta.dirname, 'support/plain-worker.ts'), [
  redis.url,
  prefix,
  'bullmq-noop',
])
kills.push(() => plain.kill('SIGKILL'))
const connection = new Redis(redis.url, { maxRetriesPerRequest: null })
connection.on('error', () => {})
const queue = new Queue('bullmq-noop', { connection, prefix })
const events = new QueueEvents('bullmq-noop', { connection, prefix })
await events.waitUntilReady()
const o = { removeOnComplete: { count: 1000 }, removeOnFail: { count: 1000 } }
sides.bull = async () => (await queue.add('noop', {}, o)).waitUntilFinished(events, 10000)
const times: Record<string, number[]> = {}
const names = Object.keys(sides)
for (const n of names) for (let i = 0; i < 300; i++) await sides[n]!()
for (let r = 0; r < 20; r++)
  for (const n of names.map(
    (_, i) => names[(i * (r % 2 ? 1 : names.length - 1) + r) % names.length]!,
  ))
    for (let i = 0; i < 50; i++) {
      const t = performance.now()
      await sides[n]!()
      ;(times[n] ??= []).push(performance.now() - t)
    }
const q = (v: number[], p: number) =>
  v.toSorted((a, b) => a - b)[Math.floor(v.length * p)]!.toFixed(3)
console.log(
  names
    .map(
      (n) =>
        `${n.padEnd(12)} p10 ${q(times[n]!, 0.1)} p50 ${q(times[n]!, 0.5)} p99 ${q(times[n]!, 0.99)}`,
    )
    .join('\n'),
)
for (const k of kills) k()
redis.close().finally(() => process.exit(0))
