import { mkdir, readdir, symlink } from 'node:fs/promises'
import { createHash, randomBytes } from 'node:crypto'
import { join } from 'node:path'

import { expect } from 'vitest'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { it } from '#test/support/services.ts'
import { ensureModel } from '#workers/models/fetcher.ts'

import { REPOSITORY, startHub } from './hub-server.ts'

const modelAt = (source: string): CatalogueModel => ({
  ...{ id: 'a-model', kind: 'completion', source, options: {} },
  ...{ aliases: [], ownedBy: 'hub', created: 0, capabilities: [] },
})

it('forgets files of a model that object storage has no longer', async ({ folder }) => {
  const storage = openDirectoryStore(join(folder, 'objects'))
  const options = {
    ...{ rootDir: folder, cacheDir: join(folder, 'cache'), storage },
    hub: { endpoint: 'http://127.0.0.1:1', accessToken: '', isOffline: true },
    log: createLogger({ level: 'silent' }),
  }
  const put = (path: string) => storage.put(`models/mine/${path}`, randomBytes(100))
  await put('config.json')
  await put('onnx/model_quantized.onnx')
  await ensureModel(modelAt('s3:models/mine'), options)
  await storage.delete('models/mine/onnx/model_quantized.onnx')
  await put('onnx/model.onnx')
  // Of the two the worker would run the one that is gone.
  const found = await ensureModel(modelAt('s3:models/mine'), options)
  expect(await readdir(join(found, 'onnx'))).toEqual(['model.onnx'])
})

it('says which file a full disk could not take, after one attempt', async ({
  folder,
  onTestFinished,
}) => {
  const weights = randomBytes(300_000)
  const hub = await startHub({ 'config.json': '{}', 'onnx/model.onnx': weights })
  onTestFinished(() => hub.close())
  const place = join(folder, 'hub/models--someone--some-model')
  await mkdir(join(place, 'blobs'), { recursive: true })
  const digest = createHash('sha256').update(weights).digest('hex')
  // What is written there never fits.
  await symlink('/dev/full', join(place, 'blobs', `${digest}.part`))
  const pull = ensureModel(modelAt(`hub:${REPOSITORY}`), {
    ...{ rootDir: folder, cacheDir: folder, storage: openDirectoryStore(folder) },
    hub: { endpoint: hub.endpoint, accessToken: '', isOffline: false },
    log: createLogger({ level: 'silent' }),
  })
  await expect(pull).rejects.toThrow(
    `${REPOSITORY}: onnx/model.onnx cannot be stored: ENOSPC: no space left on device`,
  )
  expect(hub.seen.filter(({ host }) => host === 'cdn')).toHaveLength(1)
  expect(await readdir(place)).not.toContain('.pull.lock')
})
