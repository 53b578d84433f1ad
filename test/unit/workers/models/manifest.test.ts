import {
  appendFile,
  cp,
  mkdtemp,
  readdir,
  readFile,
  rm,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeEach, describe, expect, it } from 'vitest'

import { parseCatalogue } from '#shared/catalogue.ts'
import { findManifest, verifyFolder } from '#workers/models/manifest.ts'

const ROOT = join(import.meta.dirname, '../../../..')
const { models } = parseCatalogue(JSON.parse(await readFile(join(ROOT, 'models.json'), 'utf8')))
const scratch = await mkdtemp(join(tmpdir(), 'millrace-manifest-'))
const copy = join(scratch, 'model')
const WEIGHTS = join(copy, 'onnx/model.onnx')

beforeEach(() => cp(join(ROOT, 'models/tiny-embed'), copy, { recursive: true, force: true }))
afterAll(() => rm(scratch, { recursive: true }))

describe('the models that ship', () => {
  it.each(models.map(({ id, source }) => [id, source]))('%s is whole', async (_id, source) => {
    const folder = join(ROOT, source)
    await verifyFolder(folder)
    const files = await readdir(folder, { recursive: true })
    const loaded = files.filter((file) => /\.(onnx|txt)$|tokenizer|config\.json$/.test(file))
    const listed = await findManifest(folder)
    for (const file of loaded.filter((name) => name.includes('.'))) {
      expect(listed?.has(file), file).toBe(true)
    }
  })
})

describe('a model is refused whose file', () => {
  it('was altered', async () => {
    const bytes = await readFile(WEIGHTS)
    const middle = bytes.length >> 1
    bytes[middle] = (bytes[middle] ?? 0) ^ 1
    await writeFile(WEIGHTS, bytes)
    await expect(verifyFolder(copy)).rejects.toMatchObject({
      code: 'model_damaged',
      message: expect.stringContaining('onnx/model.onnx has another SHA-256'),
    })
  })

  it('was cut short', async () => {
    await truncate(WEIGHTS, 1000)
    await expect(verifyFolder(copy)).rejects.toThrow(/model\.onnx has 1000 bytes instead of \d+/)
  })

  it('has grown', async () => {
    await appendFile(join(copy, 'config.json'), ' ')
    await expect(verifyFolder(copy)).rejects.toThrow(/config\.json has \d+ bytes instead of \d+/)
  })

  it('is missing', async () => {
    await rm(join(copy, 'tokenizer.json'))
    await expect(verifyFolder(copy)).rejects.toThrow('tokenizer.json is missing')
  })
})
