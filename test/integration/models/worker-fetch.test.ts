import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { expect, inject } from 'vitest'

import { freshPrefix } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'
import { runWorker } from '#workers/server/main.ts'

import { startHub } from './hub-server.ts'

const { models } = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../../models.json'), 'utf8'),
) as { models: { id: string }[] }

it('serves what is here while the hub keeps a model back, and stops without waiting for it', async ({
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
