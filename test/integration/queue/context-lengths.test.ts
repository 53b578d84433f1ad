import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, inject, it, onTestFinished } from 'vitest'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { eventually, freshPrefix, log, openTestSubmitter } from '#test/support/queue.ts'
import { openSurface } from '#test/unit/api/inference/surface.ts'
import { MODEL_RESIDENCY, Residency } from '#workers/models/residency.ts'
import { type OpenModel, type OpenTools, PROCESSORS } from '#workers/processors/index.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { WorkerHost } from '#workers/server/worker-host.ts'

const ROOT = join(import.meta.dirname, '../../..')

it('lists the contexts of text models from the heartbeats of their worker, also of unloaded ones', async () => {
  const catalogue = await loadCatalogue(join(ROOT, 'models.json'))
  const [url, prefix] = [inject('redisUrl'), freshPrefix()]
  const submitter = await openTestSubmitter(url, prefix)
  onTestFinished(() => submitter.close())
  const workersSeen = () => submitter.ledger.workers
  const surface = await openSurface(undefined, { catalogue, workersSeen })
  onTestFinished(() => surface.app.close())
  const lengths = async () => {
    const { data } = (await surface.get('/v1/models')).json()
    return Object.fromEntries(
      data.map((model: { id: string; max_model_len?: number }) => [model.id, model.max_model_len]),
    )
  }
  expect((await lengths())['tiny-chat']).toBeUndefined()

  const stop = await startWorker(url, prefix, catalogue.models)
  onTestFinished(stop)
  await expect
    .poll(() => workersSeen().flatMap(({ queues }) => queues.map(({ isReady }) => isReady)), {
      timeout: 60_000,
    })
    .toEqual(catalogue.models.map(() => true))
  // As their config.json and tokenizer_config.json say.
  expect(await lengths()).toEqual({
    'tiny-chat': 1024,
    'tiny-vlm': 512,
    'tiny-embed': 256,
    'tiny-rerank': 256,
    'tiny-moderation': 256,
  })
  const labels = workersSeen().flatMap(({ queues }) =>
    queues.flatMap((each) => each.labelCount ?? []),
  )
  expect(labels).toEqual([6])

  await stop()
  await eventually(() => workersSeen().length === 0)
  expect((await lengths())['tiny-chat']).toBeUndefined()
}, 120_000)

/** A worker of the shipped models, with memory for one at a time. */
async function startWorker(url: string, prefix: string, models: readonly CatalogueModel[]) {
  const redis = await openRedis(url, 'worker', log)
  const subscriber = await openRedis(url, 'worker', log)
  const runtime = openRuntime()
  const storage = openDirectoryStore(join(tmpdir(), prefix))
  const open = async (model: CatalogueModel): Promise<OpenModel> => {
    const row = PROCESSORS.find(({ kind }) => kind === model.kind)
    if (row === undefined) throw new Error(`nothing opens ${model.kind}`)
    const config = { intraOpThreads: 1 } as OpenTools['config']
    const fetchOptions = {} as OpenTools['fetchOptions']
    const tools = {
      runtime,
      storage,
      fetchOptions,
      config,
      log,
      clock: systemClock,
      slots: 1,
      slotsMax: 1,
    }
    const opened = await row.open(model, { ...tools, folder: join(ROOT, model.source as string) })
    return { ...opened, bytes: 1 }
  }
  const residency = new Residency<OpenModel>({ ...MODEL_RESIDENCY, bytesMax: 1, open, log })
  const host = new WorkerHost({
    redis,
    subscriber,
    residency,
    log,
    version: 'test',
    clock: systemClock,
    keys: queueKeys(prefix),
    served: models.map((model) => ({ model, slots: 1 })),
  })
  await host.start()
  let stopping: Promise<void> | undefined
  const stop = async (): Promise<void> => {
    await host.drain(100)
    redis.disconnect()
    subscriber.disconnect()
    await residency.close()
    await runtime.close()
  }
  return () => (stopping ??= stop())
}
