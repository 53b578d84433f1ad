import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { readRendered } from '#test/support/helm.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

interface Scaled {
  readonly scaleTargetRef: { readonly name: string }
  readonly triggers: readonly {
    readonly type: string
    readonly metadata: Readonly<Record<string, string>>
  }[]
}

const objects = readRendered('whole')
const scaledObjects = objects.filter(({ kind }) => kind === 'ScaledObject')
const triggers = scaledObjects.flatMap(({ spec }) => (spec as unknown as Scaled).triggers)

/** The value that KEDA's metrics-api trigger reads at its `valueLocation`, a path of fields. */
async function readByTrigger(
  { url = '', valueLocation = '' }: Readonly<Record<string, string>>,
  metricsUrl: string,
): Promise<unknown> {
  const answer = await fetch(`${metricsUrl}${new URL(url).pathname}`)
  expect(answer.status).toBe(200)
  const body: unknown = await answer.json()
  return valueLocation
    .split('.')
    .reduce((value, field) => (value as Record<string, unknown>)[field], body)
}

describe('the scaling of the workers', () => {
  const keyPrefix = freshPrefix()
  let database: Awaited<ReturnType<typeof createDatabase>>
  let folder: string
  let tiers: Tiers
  let connection: Redis

  beforeAll(async () => {
    database = await createDatabase()
    folder = await mkdtemp(join(tmpdir(), 'millrace-backlog-'))
    connection = new Redis(inject('redisUrl'), { maxRetriesPerRequest: null })
    tiers = await startTiers({
      databaseUrl: database.url,
      redisUrl: inject('redisUrl'),
      keyPrefix,
      folder,
    })
  })

  afterAll(async () => {
    await tiers?.stop()
    connection?.disconnect()
    await database?.drop()
    await rm(folder, { recursive: true, force: true })
  })

  it('counts the jobs that wait, of both kinds, and those that run, and no others', async () => {
    const trigger = triggers.find(({ metadata }) => metadata.url?.endsWith('completion.tiny-chat'))
    expect(trigger?.type).toBe('metrics-api')
    const read = () => readByTrigger(trigger?.metadata ?? {}, tiers.metricsUrl)
    expect(await read()).toBe(0)
    const queue = new Queue('completion.tiny-chat', { connection, prefix: keyPrefix })
    await fill(queue, keyPrefix, connection)
    // Two run, three wait, four wait by priority.
    expect(await queue.getJobCounts()).toMatchObject({
      active: 2,
      waiting: 3,
      prioritized: 4,
      delayed: 5,
      completed: 1,
      failed: 1,
    })
    expect(await read()).toBe(2 + 3 + 4)
    await queue.obliterate({ force: true })
    expect(await read()).toBe(0)
    await queue.close()
  })

  it('asks the service, on a port that it has, for a queue that its workers serve', () => {
    for (const scaled of scaledObjects) {
      const { scaleTargetRef, triggers: own } = scaled.spec as unknown as Scaled
      const target = specOf('Deployment', scaleTargetRef.name)
      for (const { metadata } of own) {
        const url = new URL(metadata.url ?? '')
        const [service = '', namespace] = url.hostname.split('.')
        expect(namespace).toBe('millrace')
        const { ports } = specOf('Service', service) as { ports: { port: number; name: string }[] }
        expect(ports.find(({ name }) => name === 'metrics')?.port).toBe(Number(url.port))
        const queue = url.pathname.split('/').at(-1) ?? ''
        const [kind, ...model] = queue.split('.')
        expect(settingOf(target, 'MILLRACE_WORKER_KINDS')).toContain(kind)
        expect(settingOf(target, 'MILLRACE_WORKER_MODELS')).toContain(model.join('.'))
      }
    }
  })

  it('answers 404 for an unknown queue, and 503 rather than a wrong number', async () => {
    const unknown = await fetch(`${tiers.metricsUrl}/metrics-api/queues/completion.nobody`)
    expect(unknown.status).toBe(404)
    // A list in place of a sorted set is an example of everything that keeps Redis from counting.
    const key = `${keyPrefix}:embedding.tiny-embed:prioritized`
    await connection.lpush(key, 'x')
    const broken = await fetch(`${tiers.metricsUrl}/metrics-api/queues/embedding.tiny-embed`)
    expect(broken.status).toBe(503)
    await connection.del(key)
  })
})

/**
 * Jobs in every state that BullMQ knows: 1 completed, 1 failed, 2 active, 3, 4 and 5 not yet begun.
 */
async function fill(queue: Queue, prefix: string, connection: Redis): Promise<void> {
  const worker = new Worker(queue.name, null, { connection, prefix, autorun: false })
  const take = () => worker.getNextJob('token', { block: false })
  await queue.addBulk([1, 2, 3, 4].map((n) => ({ name: 'job', data: { n } })))
  await (await take())?.moveToCompleted('done', 'token', false)
  await (await take())?.moveToFailed(new Error('broken'), 'token', false)
  await take()
  await take()
  await queue.addBulk([1, 2, 3].map((n) => ({ name: 'job', data: { n } })))
  await queue.addBulk(
    [1, 2, 3, 4].map((n) => ({ name: 'job', data: { n }, opts: { priority: n } })),
  )
  await queue.addBulk(
    [1, 2, 3, 4, 5].map((n) => ({ name: 'job', data: { n }, opts: { delay: 600_000 } })),
  )
  await worker.close(true)
}

function specOf(kind: string, name: string): object {
  const found = objects.find((object) => object.kind === kind && object.metadata.name === name)
  if (found === undefined) throw new Error(`there is no ${kind} ${name}`)
  return found.spec as object
}

function settingOf(deployment: object, name: string): string {
  const { template } = deployment as {
    template: { spec: { containers: { env: { name: string; value: string }[] }[] } }
  }
  return template.spec.containers[0]?.env.find((entry) => entry.name === name)?.value ?? ''
}
