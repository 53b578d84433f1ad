import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readdir, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'

import { expect } from 'vitest'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { it } from '#test/support/services.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'

import { REPOSITORY, startHub } from './hub-server.ts'

const modelAt = (source: string): CatalogueModel => ({
  id: 'a-model',
  kind: 'completion',
  source,
  options: {},
  aliases: [],
  ownedBy: 'hub',
  created: 0,
  capabilities: [],
})

it('deletes files of a model that object storage no longer has', async ({ folder }) => {
  const storage = openDirectoryStore(join(folder, 'objects'))
  const options = {
    cacheDir: join(folder, 'cache'),
    storage,
    hub: { endpoint: 'http://127.0.0.1:1', accessToken: '', isOffline: true },
    log: createLogger({ level: 'silent' }),
  }
  const put = (path: string) => storage.put(`models/mine/${path}`, randomBytes(100))
  await put('config.json')
  await put('onnx/model_quantized.onnx')
  await ensureModel(modelAt('s3:models/mine'), options)
  await storage.delete('models/mine/onnx/model_quantized.onnx')
  await put('onnx/model.onnx')
  // If both were left, the worker would run the deleted one.
  const found = await ensureModel(modelAt('s3:models/mine'), options)
  expect(await readdir(join(found, 'onnx'))).toEqual(['model.onnx'])
})

/** A cache that was filled from a storage, which then can be broken. */
async function filledCache(folder: string) {
  const stored = openDirectoryStore(join(folder, 'objects'))
  const put = (path: string, bytes: number) => stored.put(`models/mine/${path}`, randomBytes(bytes))
  await put('config.json', 100)
  await put('onnx/model.onnx', 100)
  const options = {
    cacheDir: join(folder, 'cache'),
    storage: stored,
    hub: { endpoint: 'http://127.0.0.1:1', accessToken: '', isOffline: true },
    log: createLogger({ level: 'silent' }),
  }
  const place = await ensureModel(modelAt('s3:models/mine'), options)
  const ensure = (more: Partial<StoredOptions>) =>
    ensureModel(modelAt('s3:models/mine'), { ...options, ...more })
  return { stored, put, place, ensure }
}

const trouble = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
const away: ObjectStore['list'] = () => ({
  [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(trouble) }),
})

it('does with the cache while object storage is in trouble', async ({ folder }) => {
  const { stored, put, place, ensure } = await filledCache(folder)
  expect(await ensure({ storage: { ...stored, list: away } })).toBe(place)
  // The answer of the storage counts.
  await stored.delete('models/mine/onnx/model.onnx')
  await expect(ensure({})).rejects.toThrow('s3:models/mine cannot be used')
  const gone = Object.assign(new Error('no bucket'), { $metadata: { httpStatusCode: 404 } })
  const none: ObjectStore['list'] = () => ({
    [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(gone) }),
  })
  await expect(ensure({ storage: { ...stored, list: none } })).rejects.toThrow('no bucket')
  // A model of which one file is new and the other old is none.
  await put('config.json', 200)
  await put('onnx/model.onnx', 200)
  const breaking: ObjectStore['get'] = (key) =>
    key.endsWith('.onnx') ? Promise.reject(trouble) : stored.get(key)
  await expect(ensure({ storage: { ...stored, get: breaking } })).rejects.toThrow(trouble)
  await expect(ensure({ storage: { ...stored, list: away } })).rejects.toThrow(trouble)
  expect(await ensure({})).toBe(place)
  expect(await ensure({ storage: { ...stored, list: away } })).toBe(place)
})

it('reads only the cache when offline, and says how to add a model to it', async ({ folder }) => {
  const { place, ensure } = await filledCache(folder)
  const storage = { list: away, get: () => Promise.reject(trouble) }
  expect(await ensure({ storage, isAtHand: true })).toBe(place)
  await rm(join(place, 'config.json'))
  await expect(ensure({ storage, isAtHand: true })).rejects.toThrow(
    'the cache does not hold s3:models/mine: `millrace models pull a-model` fetches it',
  )
})

it('names the file that a full disk could not store, after one attempt', async ({
  folder,
  onTestFinished,
}) => {
  const weights = randomBytes(300_000)
  const hub = await startHub({ 'config.json': '{}', 'onnx/model.onnx': weights })
  onTestFinished(() => hub.close())
  const place = join(folder, 'hub/models--someone--some-model')
  await mkdir(join(place, 'blobs'), { recursive: true })
  const digest = createHash('sha256').update(weights).digest('hex')
  // Its content never fits.
  await symlink('/dev/full', join(place, 'blobs', `${digest}.part`))
  const pull = ensureModel(modelAt(`hub:${REPOSITORY}`), {
    cacheDir: folder,
    storage: openDirectoryStore(folder),
    hub: { endpoint: hub.endpoint, accessToken: '', isOffline: false },
    log: createLogger({ level: 'silent' }),
  })
  await expect(pull).rejects.toThrow(
    `${REPOSITORY}: onnx/model.onnx cannot be stored: ENOSPC: no space left on device`,
  )
  expect(hub.seen.filter(({ host }) => host === 'cdn')).toHaveLength(1)
  expect(await readdir(place)).not.toContain('.pull.lock')
})
