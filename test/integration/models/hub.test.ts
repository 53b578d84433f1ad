import { createHash, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { afterEach, beforeEach, describe, expect } from 'vitest'

import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { it } from '#test/support/services.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import { openHubFile } from '#workers/models/hub.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'

import { COMMIT, REPOSITORY, startHub, type TestHub } from './hub-server.ts'
import { fetchOptionsOf, modelOf } from './pulls.ts'

const WEIGHTS = randomBytes(200_000)
const FILES = {
  'README.md': '# words',
  'config.json': '{"model_type":"llama"}',
  'tokenizer.json': '{}',
  'tokenizer_config.json': '{}',
  'pytorch_model.bin': randomBytes(2000),
  'onnx/model.onnx': randomBytes(3000),
  'onnx/model.onnx_data': randomBytes(4000),
  'onnx/model_q4.onnx': WEIGHTS,
}
const WEIGHTS_PATH = 'onnx/model_q4.onnx'

let hub: TestHub
beforeEach(async () => {
  hub = await startHub(FILES)
})
afterEach(() => hub.close())

const optionsFor = (folder: string, more?: Partial<StoredOptions>) =>
  fetchOptionsOf(hub, folder, more)

const MODEL = modelOf(`hub:${REPOSITORY}`)
const paths = () => hub.seen.map(({ path }) => path)

describe('a model of the hub', () => {
  it('is fetched with its configuration and the best weights, and nothing else', async ({
    folder,
  }) => {
    const progress: number[] = []
    const onProgress = ({ doneBytes }: { doneBytes: number }) => void progress.push(doneBytes)
    const found = await ensureModel(MODEL, optionsFor(folder, { onProgress }))
    const names = await readdir(found, { recursive: true })
    expect(names.toSorted()).toEqual([
      'config.json',
      'onnx',
      WEIGHTS_PATH,
      'tokenizer.json',
      'tokenizer_config.json',
    ])
    expect(await readFile(join(found, WEIGHTS_PATH))).toEqual(WEIGHTS)
    expect(found.endsWith(join('snapshots', COMMIT))).toBe(true)
    expect(progress).toEqual(progress.toSorted((a, b) => a - b))
    expect(progress.at(-1)).toBeGreaterThan(WEIGHTS.length)
  })

  it('includes the external data of the requested weights', async ({ folder }) => {
    const model = modelOf(`hub:${REPOSITORY}`, { onnxFile: 'model' })
    const found = await ensureModel(model, optionsFor(folder))
    expect((await readdir(join(found, 'onnx'))).toSorted()).toEqual([
      'model.onnx',
      'model.onnx_data',
    ])
  })

  it('is the folder of its best variant if the repository has several', async ({ folder }) => {
    for (const path of Object.keys(FILES)) if (path.startsWith('onnx/')) hub.files.delete(path)
    for (const variant of ['cpu_and_mobile/cpu-int4', 'cuda/cuda-fp16']) {
      for (const name of ['genai_config.json', 'tokenizer.json', 'model.onnx', 'model.onnx.data'])
        hub.files.set(`${variant}/${name}`, Buffer.from(`${variant} ${name}`))
    }
    const found = await ensureModel(MODEL, optionsFor(folder))
    expect(found.endsWith(join('snapshots', COMMIT, 'cpu_and_mobile/cpu-int4'))).toBe(true)
    expect((await readdir(found)).toSorted()).toEqual([
      'genai_config.json',
      'model.onnx',
      'model.onnx.data',
      'tokenizer.json',
    ])
    expect(existsSync(join(found, '../../cuda'))).toBe(false)
    const isAway = { endpoint: 'http://127.0.0.1:1', accessToken: '', isOffline: true }
    expect(await ensureModel(MODEL, optionsFor(folder, { hub: isAway }))).toBe(found)
  })

  it('resumes its download where the connection broke', async ({ folder }) => {
    hub.breaks.set(WEIGHTS_PATH, [50_000, 60_000])
    const found = await ensureModel(MODEL, optionsFor(folder))
    expect(await readFile(join(found, WEIGHTS_PATH))).toEqual(WEIGHTS)
    const ranges = hub.seen.filter(({ host }) => host === 'cdn').map(({ range }) => range)
    expect(ranges).toHaveLength(3)
    expect(ranges[0]).toBeUndefined()
    expect(Number(/bytes=(\d+)-/.exec(ranges[2] ?? '')?.[1])).toBeGreaterThan(50_000)
  })

  it('is not fetched from within this network if the hub is on the internet', async () => {
    const { port } = new URL(hub.endpoint)
    // It is asked once to connect and once to judge; only the judge sees a public address.
    const resolve = async () => [
      { family: 4, address: hub.seen.length === 0 ? '127.0.0.1' : '8.8.8.8' },
    ]
    const outside = { endpoint: `http://hub.test:${port}`, accessToken: '', resolve }
    const file = { repository: REPOSITORY, revision: 'main', commit: COMMIT, path: WEIGHTS_PATH }
    const options = { offset: 0, signal: AbortSignal.timeout(60_000) }
    await expect(openHubFile(outside, file, options)).rejects.toThrow(
      'the hub redirects into this network',
    )
    expect(hub.seen.map(({ host }) => host)).toEqual(['hub'])
  })

  it('is not fetched again if it is complete', async ({ folder }) => {
    await ensureModel(MODEL, optionsFor(folder))
    hub.seen.length = 0
    await ensureModel(MODEL, optionsFor(folder))
    expect(paths()).toEqual([`/api/models/${REPOSITORY}/revision/main`])
  })

  it('is fetched once if several processes request it at once', async ({ folder }) => {
    const options = optionsFor(folder)
    await Promise.all([1, 2, 3].map(() => ensureModel(MODEL, options)))
    expect(hub.seen.filter(({ host }) => host === 'cdn')).toHaveLength(1)
  })

  it.for(['onnx/model_q4.onnx', 'tokenizer.json'])(
    'is refused when %s is not what the hub states',
    async (path, { folder }) => {
      const real = hub.files.get(path) as Buffer
      hub.forged.set(path, Buffer.alloc(real.length, 'x'))
      const pull = ensureModel(MODEL, optionsFor(folder))
      await expect(pull).rejects.toThrow(`${path} came damaged`)
      const snapshot = join(folder, 'cache/hub/models--someone--some-model/snapshots', COMMIT)
      expect(existsSync(join(snapshot, path))).toBe(false)
    },
  )

  it('is downloaded again from the start if the part before the break was wrong', async ({
    folder,
  }) => {
    const parts = join(folder, 'cache/hub/models--someone--some-model/blobs')
    await mkdir(parts, { recursive: true })
    const digest = createHash('sha256').update(WEIGHTS).digest('hex')
    await writeFile(join(parts, `${digest}.part`), Buffer.alloc(50_000))
    const found = await ensureModel(MODEL, optionsFor(folder))
    expect(await readFile(join(found, WEIGHTS_PATH))).toEqual(WEIGHTS)
    const ranges = hub.seen.filter(({ host }) => host === 'cdn').map(({ range }) => range)
    expect(ranges).toEqual(['bytes=50000-', undefined])
  })

  it('is used from the cache if the hub is away or must not be asked', async ({ folder }) => {
    const found = await ensureModel(MODEL, optionsFor(folder))
    const isAway = { endpoint: 'http://127.0.0.1:1', accessToken: '', isOffline: false }
    expect(await ensureModel(MODEL, optionsFor(folder, { hub: isAway }))).toBe(found)
    hub.seen.length = 0
    const offline = { ...isAway, isOffline: true }
    expect(await ensureModel(MODEL, optionsFor(folder, { hub: offline }))).toBe(found)
    expect(hub.seen).toEqual([])
  })

  it('is named as missing if it is neither in the cache nor reachable', async ({ folder }) => {
    const offline = { endpoint: hub.endpoint, accessToken: '', isOffline: true }
    const pull = ensureModel(MODEL, optionsFor(folder, { hub: offline }))
    await expect(pull).rejects.toThrow(
      `HF_HUB_OFFLINE is set, and the cache does not hold ${REPOSITORY}@main`,
    )
  })
})

describe('the access token', () => {
  it('goes to the hub and never to the server of the files', async ({ folder }) => {
    hub.accessToken = 'hf_secret'
    const withToken = { endpoint: hub.endpoint, accessToken: 'hf_secret', isOffline: false }
    await ensureModel(MODEL, optionsFor(folder, { hub: withToken }))
    const sent = new Set(hub.seen.map(({ host, authorization }) => `${host} ${authorization}`))
    expect(sent).toEqual(new Set(['hub Bearer hf_secret', 'cdn undefined']))
  })

  it('is named in the error when the hub refuses', async ({ folder }) => {
    hub.accessToken = 'hf_secret'
    await expect(ensureModel(MODEL, optionsFor(folder))).rejects.toThrow('HF_TOKEN')
  })
})

it.for([
  ['hub:someone/unknown', 'the hub has no someone/unknown@main'],
  ['hub:someone/../else', 'is not a repository'],
  ['hub:nobody', 'is not a repository'],
  ['somewhere', 'are not there'],
  ['s3:nowhere', 'no ONNX file'],
])('says what is wrong with the source %s', async ([source, message], { folder }) => {
  await expect(ensureModel(modelOf(source as string), optionsFor(folder))).rejects.toThrow(message)
})

it('fetches a model from object storage, and only the changed files the second time', async ({
  folder,
}) => {
  const storage = openDirectoryStore(join(folder, 'objects'))
  for (const [path, body] of Object.entries(FILES)) {
    await storage.put(`models/mine/${path}`, Buffer.from(body))
  }
  const read: string[] = []
  const watched = {
    list: storage.list,
    get: (key: string) => {
      read.push(key)
      return storage.get(key)
    },
  }
  const options = optionsFor(folder, { storage: watched })
  const found = await ensureModel(modelOf('s3:models/mine'), options)
  expect(await readFile(join(found, WEIGHTS_PATH))).toEqual(WEIGHTS)
  expect(read).not.toContain('models/mine/README.md')
  read.length = 0
  await storage.put('models/mine/config.json', Buffer.from('{"model_type":"phi"}'))
  await ensureModel(modelOf('s3:models/mine'), options)
  expect(read).toEqual(['models/mine/config.json'])
})

it('refuses a model whose files are not those of its manifest', async ({ folder }) => {
  await mkdir(join(folder, 'mine'))
  await writeFile(join(folder, 'mine/config.json'), '{}')
  const digest = { sha256: '0'.repeat(64), bytes: 2 }
  await writeFile(
    join(folder, 'mine/manifest.json'),
    JSON.stringify({ files: { 'config.json': digest } }),
  )
  await expect(ensureModel(modelOf(join(folder, 'mine')), optionsFor(folder))).rejects.toThrow(
    'config.json has another SHA-256',
  )
})
