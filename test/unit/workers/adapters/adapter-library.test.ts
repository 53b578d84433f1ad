import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { type AdapterLibrary, openAdapterLibrary } from '#workers/adapters/adapter-library.ts'
import { fitAdapter } from '#workers/adapters/fit-adapter.ts'
import { findLinearModules, type LinearModule } from '#workers/adapters/target-modules.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { readModelFile } from '#workers/graph/read-model.ts'

const ADAPTERS = join(import.meta.dirname, '../../../fixtures/adapters')
const PLAIN = join(ADAPTERS, 'llama/plain')
const log = createLogger({ level: 'silent' })
const root = mkdtempSync(join(tmpdir(), 'millrace-adapters-'))
afterAll(() => rmSync(root, { recursive: true }))

let targets: readonly LinearModule[] = []
beforeAll(async () => {
  const { graph } = await readModelFile(join(MODELS, 'llama/onnx/model.onnx'))
  targets = findLinearModules(new GraphView(graph))
})

/** A library over the modules of a tiny model, and how many adapters it has loaded. */
function openLibrary(bytesMax = 0): { library: AdapterLibrary; loads: () => number } {
  let loads = 0
  const storage = openDirectoryStore(join(root, 'store'))
  const hub = { endpoint: 'http://127.0.0.1:9', accessToken: '', isOffline: true }
  const library = openAdapterLibrary({
    bytesMax,
    rankMax: 8,
    log,
    fetchOptions: { cacheDir: join(root, 'cache'), hub, storage, log },
    fit: async (adapter) => {
      loads += 1
      return fitAdapter(adapter, targets)
    },
  })
  return { library, loads: () => loads }
}

describe('the adapters of a model', () => {
  it('are loaded once from a folder for all current users', async () => {
    const { library, loads } = openLibrary()
    const reference = { id: 'a', source: PLAIN }
    const [one, other] = await Promise.all([library.lease(reference), library.lease(reference)])
    expect(other.adapter).toBe(one.adapter)
    expect(one.adapter.layers.size).toBe(14)
    expect(loads()).toBe(1)
  })

  it('are fetched from object storage', async () => {
    const storage = openDirectoryStore(join(root, 'store'))
    for (const name of ['adapter_config.json', 'adapter_model.safetensors']) {
      const body = readFileSync(join(PLAIN, name))
      await storage.put(`fine-tuning/1/adapter/${name}`, body)
    }
    const { library } = openLibrary()
    const { adapter } = await library.lease({ id: 'b', source: 's3:fine-tuning/1/adapter' })
    expect(adapter.rank).toBe(4)
  })

  it('are unloaded in the order of their last use, but never while they are in use', async () => {
    const { bytes } = (await openLibrary().library.lease({ id: 'x', source: PLAIN })).adapter
    const { library, loads } = openLibrary(2 * bytes)
    const use = async (id: string) => {
      const lease = await library.lease({ id, source: PLAIN })
      lease.release()
    }
    const held = await library.lease({ id: 'held', source: PLAIN })
    await use('second')
    await use('third')
    await use('held')
    expect(loads()).toBe(3)
    await use('second')
    expect(loads()).toBe(4)
    const also = await library.lease({ id: 'second', source: PLAIN })
    await expect(use('third')).rejects.toThrow('no memory left for the adapter `third`')
    held.release()
    also.release()
    await use('third')
    expect(loads()).toBe(6)
  })

  it('with one id and different sources are different', async () => {
    const { library } = openLibrary()
    const one = await library.lease({ id: 'same', source: PLAIN })
    const other = await library.lease({ id: 'same', source: join(ADAPTERS, 'llama/ranks') })
    expect(other.adapter.layers.size).not.toBe(one.adapter.layers.size)
  })

  it.each<[string, (folder: string) => void, string]>([
    [
      'a method that is not served',
      (folder) => change(folder, { use_dora: true }),
      'use_dora is true, which cannot be served',
    ],
    [
      'a layer that the model does not have',
      (folder) => cpSync(join(ADAPTERS, 'gpt2/fused'), folder, { recursive: true }),
      'lora_A.weight is of no linear layer of the model',
    ],
    [
      'no weights',
      (folder) => rmSync(join(folder, 'adapter_model.safetensors')),
      'adapter_model.safetensors is missing',
    ],
  ])('are refused with %s, without paths of the machine', async (name, damage, reason) => {
    const folder = join(root, name.replaceAll(' ', '-'))
    mkdirSync(folder)
    cpSync(PLAIN, folder, { recursive: true })
    damage(folder)
    const leasing = openLibrary().library.lease({ id: 'broken', source: folder })
    const error = await leasing.catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ kind: 'unprocessable', code: 'adapter_invalid' })
    const { message } = error as Error
    expect(message).toContain('The adapter `broken` cannot be used: ')
    expect(message).toContain(reason)
    expect(message).not.toContain(root)
  })
})

function change(folder: string, changes: object): void {
  const path = join(folder, 'adapter_config.json')
  const config = JSON.parse(readFileSync(path, 'utf8')) as object
  writeFileSync(path, JSON.stringify({ ...config, ...changes }))
}
