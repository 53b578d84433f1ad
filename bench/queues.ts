import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import { Job, Worker } from 'bullmq'
import { Redis } from 'ioredis'

import { ENVELOPE_VERSION, queuedJobId, queueName } from '#shared/contracts/job.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import {
  assignTicket,
  JobProducer,
  type PriorityClass,
  priorityOf,
} from '#shared/queue/producer.ts'
import { log, startRedis, toyRequest } from '#test/support/queue.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'

const SHALLOW = 100
const DEEP = 1_000_000
const FILL_AT_ONCE = 20_000
const CYCLES = 400
const KIND = 'completion'
const MODEL = 'toy'

/** The waiting jobs, and their classes. */
interface Crowd {
  readonly name: string
  readonly organizations: number
  readonly classes: readonly PriorityClass[]
  readonly atMost: number
}

const CROWDS: readonly Crowd[] = [
  { name: 'first in, first out', organizations: 1, classes: ['default'], atMost: 1.2 },
  {
    name: 'four priorities',
    organizations: 1,
    classes: ['priority', 'default', 'flex', 'batch'],
    atMost: 1.6,
  },
  { name: '1,000 organizations', organizations: 1000, classes: ['default'], atMost: 1.6 },
]

/** A queue with jobs that wait. */
interface Queue {
  /** Assigns a ticket, enqueues a job and fetches the next one: milliseconds in the mean. */
  cycle(): Promise<number>
  numWaiting(): Promise<number>
  close(): Promise<void>
}

/**
 * Measures putting a job into a queue and fetching one, with a million waiting against a hundred.
 */
export async function benchQueues(): Promise<readonly Figure[]> {
  const figures: Figure[] = []
  for (const crowd of CROWDS) {
    const redis = await startRedis()
    try {
      const admin = new Redis(redis.url)
      // Rewriting a file of a million jobs would be measured instead of the queue.
      await admin.config('SET', 'appendonly', 'no')
      const deep = await openQueue(redis.url, admin, crowd, DEEP)
      const shallow = await openQueue(redis.url, admin, crowd, SHALLOW)
      const found = await alternate(deep.cycle, shallow.cycle)
      assert.equal(await deep.numWaiting(), DEEP, 'as many jobs wait as in the beginning')
      await Promise.all([deep.close(), shallow.close()])
      admin.disconnect()
      figures.push({
        name: `enqueue and fetch with ${DEEP} jobs waiting ÷ with ${SHALLOW}, ${crowd.name}`,
        unit: 'ms',
        ...found,
        target: { atMost: crowd.atMost },
      })
    } finally {
      await redis.close()
    }
  }
  return figures
}

async function openQueue(url: string, admin: Redis, crowd: Crowd, depth: number): Promise<Queue> {
  const prefix = `bench-${depth}`
  const keys = queueKeys(prefix)
  const redis = await openRedis(url, 'producer', log)
  const producer = new JobProducer({ redis, keys, log })
  const fetching = await openRedis(url, 'worker', log)
  const worker = new Worker(queueName(KIND, MODEL), null, {
    connection: fetching,
    prefix,
    autorun: false,
  })
  await worker.waitUntilReady()
  let count = 0
  const enqueue = async (): Promise<string> => {
    count += 1
    const organizationId = `organization-${count % crowd.organizations}`
    const admission = await assignTicket(redis, keys, {
      kind: KIND,
      modelId: MODEL,
      organizationId,
      depthMax: 2 * DEEP,
      newestStart: undefined,
    })
    assert.ok(admission.isAdmitted)
    const jobId = randomUUID()
    const priorityClass = crowd.classes[count % crowd.classes.length] ?? 'default'
    const { input, deadlineAtMs } = toyRequest('hello', 1)
    await producer.enqueue(
      {
        version: ENVELOPE_VERSION,
        jobId,
        epoch: 1,
        kind: KIND,
        modelId: MODEL,
        input,
        organizationId,
        replyTo: 'bench',
        enqueuedAtMs: Date.now(),
        deadlineAtMs,
      },
      priorityOf(admission.ticket, priorityClass),
    )
    return jobId
  }
  const template = keys.bull(KIND, MODEL, queuedJobId(await enqueue(), 1))
  await fill(admin, crowd, { keys, template, depth })
  let token = 0
  return {
    async cycle() {
      let spentMs = 0
      for (let turn = 0; turn < CYCLES; turn += 1) {
        const startedAt = performance.now()
        await enqueue()
        token += 1
        const [data, id] = ((await worker.backend.moveToActive(`${token}`)) ?? []) as unknown[]
        spentMs += performance.now() - startedAt
        assert.ok(typeof data === 'object' && data !== null, 'a job was fetched')
        const job = Job.fromJSON(worker, data as Parameters<typeof Job.fromJSON>[1], String(id))
        await job.moveToCompleted(null, `${token}`, false)
      }
      return spentMs / CYCLES
    },
    numWaiting: () => admin.zcard(keys.bull(KIND, MODEL, 'prioritized')),
    async close() {
      await Promise.all([worker.close(true), producer.close()])
      redis.disconnect()
      fetching.disconnect()
    },
  }
}

/**
 * Copies of one real job with the tickets that each organization would have. KEYS:
 * job to copy, `prioritized` set, tickets hash, BullMQ's priority counter; ARGV: first, last,
 * organizations, prefix of job keys, then the classes' offsets.
 */
const FILL = `
local classes = #ARGV - 4
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local organization = i % tonumber(ARGV[3])
  local turn = math.floor(i / tonumber(ARGV[3])) + 1
  local id = 'filled' .. i
  redis.call('COPY', KEYS[1], ARGV[4] .. id)
  local priority = math.min(turn + tonumber(ARGV[5 + i % classes]), 2097151)
  local counter = redis.call('INCR', KEYS[4])
  redis.call('ZADD', KEYS[2], string.format('%.0f', priority * 4294967296 + counter), id)
  if i + tonumber(ARGV[3]) > tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[3], 'last:organization-' .. organization, turn)
  end
end
`

async function fill(
  admin: Redis,
  { organizations, classes }: Crowd,
  queue: { keys: ReturnType<typeof queueKeys>; template: string; depth: number },
): Promise<void> {
  const { keys, template, depth } = queue
  const parts = [
    template,
    keys.bull(KIND, MODEL, 'prioritized'),
    keys.tickets(KIND, MODEL),
    keys.bull(KIND, MODEL, 'pc'),
  ]
  const offsets = classes.map((name) => priorityOf({ generation: '', position: 0 }, name))
  // One job waits already.
  for (let first = 1; first < depth; first += FILL_AT_ONCE) {
    const last = Math.min(first + FILL_AT_ONCE, depth) - 1
    const ownPrefix = keys.bull(KIND, MODEL, '')
    await admin.eval(FILL, 4, ...parts, first, last, organizations, ownPrefix, ...offsets)
  }
}
