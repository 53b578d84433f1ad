import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { findDecoderFile } from '#workers/engine/model-files.ts'
import { findEncoderDecoder } from '#workers/models/encoder-decoder-files.ts'
import { ensureModel } from '#workers/models/fetcher.ts'
import { findModelFile } from '#workers/models/find-model-file.ts'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'millrace-paths-'))
})
afterEach(() => rmSync(root, { recursive: true }))

/** The folder of a model whose source is a folder of these files. */
async function folderOf(paths: readonly string[], onnxFile?: string): Promise<string> {
  for (const path of paths) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), '{}')
  }
  const options = onnxFile === undefined ? {} : { onnxFile }
  const model = { id: 'm', source: root, options }
  return ensureModel(model, {
    cacheDir: join(root, '.cache'),
    hub: { endpoint: 'http://127.0.0.1:9', accessToken: '', isOffline: true },
    log: createLogger({ level: 'silent' }),
    storage: openDirectoryStore(join(root, '.objects')),
  })
}

describe('a folder with several models', () => {
  const VARIANTS = ['cpu/int4', 'cuda/fp16'].flatMap((folder) =>
    ['genai_config.json', 'model.onnx', 'model.onnx.data'].map((name) => `${folder}/${name}`),
  )

  it('is read as a repository of the hub with the same files', async () => {
    const folder = await folderOf(VARIANTS)
    expect(folder).toBe(join(root, 'cpu/int4'))
    expect(await findDecoderFile(folder)).toBe(join(root, 'cpu/int4/model.onnx'))
  })

  it.each(['cuda/fp16/model', 'cuda/fp16/model.onnx'])('has a decoder at %s', async (onnxFile) => {
    const folder = await folderOf(VARIANTS, onnxFile)
    expect(folder).toBe(join(root, 'cuda/fp16'))
    expect(await findDecoderFile(folder, { onnxFile })).toBe(join(root, 'cuda/fp16/model.onnx'))
  })

  it('has a voice beside the settings of its name', async () => {
    const onnxFile = 'en/en_US/amy/low/amy'
    const paths = ['.onnx', '.onnx.json'].map((ending) => onnxFile + ending)
    const folder = await folderOf(['voices.json', ...paths], onnxFile)
    expect(await findModelFile(folder, onnxFile)).toBe(join(root, `${onnxFile}.onnx`))
    expect(folder).toBe(join(root, 'en/en_US/amy/low'))
  })

  it('has an encoder and a decoder in a folder that has no configuration', async () => {
    const place = 'onnx/merged/base/float'
    const names = ['encoder_model', 'decoder_model_merged', 'decoder_model_merged_q4']
    const paths = names.map((name) => `${place}/${name}.onnx`)
    const onnxFile = `${place}/decoder_model_merged`
    const folder = await folderOf(['config.json', ...paths], onnxFile)
    expect(folder).toBe(root)
    expect(await findEncoderDecoder(folder, { onnxFile, suffixes: ['_q4', ''] })).toEqual({
      encoderFile: join(root, place, 'encoder_model.onnx'),
      decoderFiles: [join(root, `${onnxFile}.onnx`)],
    })
  })
})

it('names the existing graphs if the requested one is missing', async () => {
  const folder = await folderOf(['config.json', 'onnx/model_O3.onnx', 'onnx/model_O4.onnx'])
  await expect(findModelFile(folder, 'onnx/model_O2')).rejects.toThrow(
    'there is no onnx/model_O2 in onnx/ or beside config.json, only onnx/model_O3.onnx, onnx/model_O4',
  )
})

it('names the task that gives a decoder the cache that it lacks', async () => {
  const names = ['encoder_model', 'decoder_model'].map((name) => `onnx/${name}.onnx`)
  const folder = await folderOf(['config.json', ...names])
  await expect(findEncoderDecoder(folder, { suffixes: ['_q4', ''] })).rejects.toThrow(
    /decoder_model\.onnx has no cache.*-with-past/,
  )
})
