import { readdirSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Redis } from 'ioredis'
import { expect, inject } from 'vitest'

import type { AddedModel } from '#shared/live-catalogue.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { listWorkers } from '#shared/queue/liveness.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'
import { runWorker } from '#workers/server/main.ts'

import { startHub } from './hub-server.ts'

const { models } = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../../models.json'), 'utf8'),
) as { models: { id: string }[] }

it('serves the available models while the hub delays one, and stops without waiting for it', async ({
  folder,
  onTestFinished,
}) => {
  const hub = await startHub({ 'config.json': '{}', 'onnx/model.onnx': Buffer.alloc(5000) })
  onTestFinished(() => hub.close())
  let asked = 0
  hub.instead = (request, response) => {
    if (!decodeURIComponent(request.url ?? '').includes('model.onnx')) return false
    asked += 1
    // The beginning comes and nothing more.
    response.writeHead(200, { 'content-length': 5000 }).write('x')
    return true
  }
  const slow = { id: 'slow', kind: 'completion', source: 'hub:someone/some-model' }
  const absent = { id: 'absent', kind: 'embedding', source: 'models/nowhere' }
  const here = models.find(({ id }) => id === 'tiny-embed')
  const catalogue = join(folder, 'models.json')
  await writeFile(catalogue, JSON.stringify({ models: [slow, absent, here] }))
  const worker = await runWorker({
    REDIS_URL: inject('redisUrl'),
    MILLRACE_REDIS_PREFIX: freshPrefix(),
    MILLRACE_CATALOGUE: catalogue,
    MILLRACE_DATA_DIR: folder,
    MILLRACE_WORKER_METRICS_PORT: '0',
    HF_ENDPOINT: hub.endpoint,
    LOG_LEVEL: 'panic',
    MILLRACE_INTRA_OP_THREADS: '1',
  })
  const metrics = async () => (await fetch(`http://127.0.0.1:${worker.healthPort}/`)).text()
  await expect
    .poll(metrics, { timeout: 60_000 })
    .toMatch(/millrace_worker_model_ready\{[^}]*"tiny-embed"[^}]*\} 1/)
  expect(await metrics()).not.toMatch(/millrace_worker_model_ready\{[^}]*"(slow|absent)"[^}]*\} 1/)
  await expect.poll(() => asked, { timeout: 60_000 }).toBe(1)
  await worker.stop()
  // One that waited would have timed out and requested it again.
  expect(asked).toBe(1)
}, 120_000)

it('fetches, loads and serves a model that is added while it runs, and ends that', async ({
  folder,
  onTestFinished,
}) => {
  const shipped = join(import.meta.dirname, '../../../models/tiny-embed')
  const names = readdirSync(shipped, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
  const files = names.map((path) => [path.slice(shipped.length + 1), readFileSync(path)] as const)
  const hub = await startHub(Object.fromEntries(files))
  const catalogue = join(folder, 'models.json')
  await writeFile(catalogue, JSON.stringify({ models: [] }))
  const prefix = freshPrefix()
  const worker = await runWorker({
    REDIS_URL: inject('redisUrl'),
    MILLRACE_REDIS_PREFIX: prefix,
    MILLRACE_CATALOGUE: catalogue,
    MILLRACE_DATA_DIR: folder,
    MILLRACE_WORKER_METRICS_PORT: '0',
    HF_ENDPOINT: hub.endpoint,
    LOG_LEVEL: 'panic',
    MILLRACE_INTRA_OP_THREADS: '1',
  })
  const redis = new Redis(inject('redisUrl'))
  onTestFinished(async () => {
    redis.disconnect()
    await worker.stop()
    await hub.close()
  })
  const keys = queueKeys(prefix)
  const served = async () => (await listWorkers(redis, keys))[0]?.queues
  expect(await served()).toEqual([])
  const entry = { id: 'added', kind: 'embedding', source: 'hub:someone/some-model' }
  const added: AddedModel = { entry, by: 'a test', at: new Date().toISOString() }
  await redis.hset(keys.addedModels, { added: JSON.stringify(added), broken: '{' })
  await expect
    .poll(served, { timeout: 60_000 })
    .toMatchObject([{ modelId: 'added', isReady: true, bytes: expect.any(Number) }])
  await redis.del(keys.addedModels)
  await expect.poll(served).toEqual([])
}, 120_000)
