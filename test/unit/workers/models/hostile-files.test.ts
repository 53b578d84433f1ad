import { execFileSync } from 'node:child_process'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { loadCatalogue } from '#shared/load-catalogue.ts'
import { fixtureFolder } from '#test/unit/workers/text/model-folders.ts'
import { openCtc } from '#workers/audio/ctc.ts'
import { openWhisper } from '#workers/audio/whisper.ts'
import { openEncoder } from '#workers/embedding/encoder.ts'
import { readSentenceHead } from '#workers/embedding/sentence-head.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openPipeline } from '#workers/image/pipeline.ts'
import { verifyFolder } from '#workers/models/manifest.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { readSafetensors } from '#workers/tensor/safetensors.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

const CLOCK = { now: () => 0, monotonic: () => 0 }
const root = mkdtempSync(join(tmpdir(), 'millrace-hostile-files-'))
const secret = join(root, 'secret.json')
writeFileSync(secret, '{"chat_template":"the secret"}')
const runtime = openRuntime()
afterAll(async () => {
  await runtime.close()
  rmSync(root, { recursive: true })
})

function copyOf(name: string): string {
  const folder = join(mkdtempSync(join(root, 'model-')), 'm')
  cpSync(fixtureFolder(name), folder, { recursive: true })
  return folder
}

/** A way to load a folder, with the files that it reads and a graph. */
interface Loader {
  readonly fixture: string
  readonly graph: string
  readonly files: readonly string[]
  load(folder: string): Promise<{ close?(): Promise<void> }>
}

const LOADERS: Readonly<Record<string, Loader>> = {
  text: {
    fixture: 'llama',
    graph: 'onnx/model.onnx',
    files: ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json'],
    load: async (folder) => {
      await loadTextModel(folder, CLOCK)
      return openTextEngine({ runtime, folder, slots: 1, onnxFile: 'model' })
    },
  },
  encoder: {
    fixture: 'minilm',
    graph: 'onnx/model.onnx',
    files: ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'modules.json'],
    load: (folder) => openEncoder({ runtime, folder }),
  },
  whisper: {
    fixture: 'whisper',
    graph: 'onnx/encoder_model.onnx',
    files: ['config.json', 'tokenizer.json', 'generation_config.json', 'preprocessor_config.json'],
    load: (folder) => openWhisper({ runtime, folder }),
  },
  ctc: {
    fixture: 'wav2vec2',
    graph: 'onnx/model.onnx',
    files: ['config.json', 'vocab.json', 'tokenizer_config.json', 'preprocessor_config.json'],
    load: (folder) => openCtc({ runtime, folder }),
  },
  images: {
    fixture: 'stable-diffusion',
    graph: 'unet/model.onnx',
    files: [
      ...['model_index.json', 'scheduler/scheduler_config.json', 'unet/config.json'],
      ...['vae_decoder/config.json', 'tokenizer/tokenizer_config.json', 'tokenizer/vocab.json'],
      ...['tokenizer/merges.txt', 'tokenizer/special_tokens_map.json'],
    ],
    load: (folder) => openPipeline({ runtime, folder }),
  },
}
const CASES = Object.entries(LOADERS).flatMap(([name, loader]) =>
  loader.files.map((file): [string, string, Loader] => [name, file, loader]),
)

/** A graph whose weights lie at a path of 16 characters. */
function graphWithWeightsAt(location: string): Buffer {
  const bytes = readFileSync(join(fixtureFolder('llama-external'), 'onnx/model.onnx'))
  const name = 'model.onnx_data'
  for (let at = bytes.indexOf(name); at >= 0; at = bytes.indexOf(name, at + 1))
    bytes.write(location, at)
  return bytes
}

describe.each(Object.entries(LOADERS))('the loader of %s', (_name, { fixture, graph, load }) => {
  it.each([
    ['../../secret.da', /escapes|External data path/],
    ['/etc/ssl/passwd', /Absolute|absolute/],
  ])('refuses a graph with weights at %s', async (location, reason) => {
    const folder = copyOf(fixture)
    writeFileSync(join(folder, '../secret.da'), 'x')
    writeFileSync(join(folder, graph), graphWithWeightsAt(location))
    await expect(load(folder)).rejects.toThrow(reason)
  })

  it('refuses a graph behind a link out of the folder', async () => {
    const folder = copyOf(fixture)
    renameSync(join(folder, graph), join(folder, '../graph.onnx'))
    symlinkSync(join(folder, '../graph.onnx'), join(folder, graph))
    await expect(load(folder)).rejects.toThrow("outside the model's folder")
  })

  it('refuses a pipe beside its graph', async () => {
    const folder = copyOf(fixture)
    execFileSync('mkfifo', [join(folder, dirname(graph), 'model.onnx_data.0')])
    await expect(load(folder)).rejects.toThrow('is not a regular file')
  })

  it('loads a snapshot whose files are links to the blobs of its repository', async () => {
    const folder = copyOf(fixture)
    const repository = mkdtempSync(join(root, 'hub-'))
    mkdirSync(join(repository, 'blobs'))
    mkdirSync(join(repository, 'snapshots'))
    const snapshot = join(repository, 'snapshots/0123abc')
    renameSync(folder, snapshot)
    const config = fixture === 'stable-diffusion' ? 'unet/config.json' : 'config.json'
    for (const name of [config, graph]) {
      renameSync(join(snapshot, name), join(repository, 'blobs', basename(name)))
      symlinkSync(join(repository, 'blobs', basename(name)), join(snapshot, name))
    }
    const loaded = await load(snapshot)
    await loaded.close?.()
  })
})

describe.each(CASES)('the loader of %s', (_name, file, { fixture, load }) => {
  it(`refuses ${file} behind a link out of the folder`, async () => {
    const folder = copyOf(fixture)
    rmSync(join(folder, file), { force: true })
    symlinkSync(secret, join(folder, file))
    await expect(load(folder)).rejects.toThrow(/is outside the model's folder/)
  })

  it(`refuses ${file} that is a pipe, without waiting for a writer`, async () => {
    const folder = copyOf(fixture)
    rmSync(join(folder, file), { force: true })
    execFileSync('mkfifo', [join(folder, file)])
    await expect(load(folder)).rejects.toThrow('is not a regular file')
  })

  it.runIf(file.endsWith('.json'))(
    `refuses ${file} of millions of brackets or values`,
    async () => {
      const folder = copyOf(fixture)
      writeFileSync(join(folder, file), '['.repeat(3_000_000))
      await expect(load(folder)).rejects.toThrow('levels of nesting')
      writeFileSync(join(folder, file), `{"a":[${'0,'.repeat(5_000_000)}0]}`)
      await expect(load(folder)).rejects.toThrow('values are allowed')
    },
  )

  it.runIf(file.endsWith('.json'))(`takes __proto__ in ${file} for a name`, async () => {
    const folder = copyOf(fixture)
    const path = join(folder, file)
    const given = (() => {
      try {
        return JSON.parse(readFileSync(path, 'utf8')) as object
      } catch {
        // The fixture has no such file.
        return {}
      }
    })()
    if (file.endsWith('vocab.json') || Array.isArray(given)) return
    const hostile = '"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}'
    writeFileSync(path, JSON.stringify({ ...given, zz: 0 }).replace('"zz":0', hostile))
    const loaded = await load(folder)
    await loaded.close?.()
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
  })
})

describe('numbers in configurations', () => {
  it.each([
    ['images', 'unet/config.json', 'sample_size', 1e9],
    ['images', 'unet/config.json', 'in_channels', 1e9],
    ['images', 'unet/config.json', 'time_cond_proj_dim', 1e12],
    ['images', 'vae_decoder/config.json', 'latent_channels', -1],
    ['images', 'vae_decoder/config.json', 'block_out_channels', Array(900).fill(1)],
    ['images', 'scheduler/scheduler_config.json', 'num_train_timesteps', 1e12],
    ['whisper', 'config.json', 'max_source_positions', 0],
    ['whisper', 'config.json', 'max_target_positions', 1e15],
    ['whisper', 'preprocessor_config.json', 'n_samples', 1e15],
    ['whisper', 'preprocessor_config.json', 'n_fft', 1e9],
    ['whisper', 'preprocessor_config.json', 'feature_size', 0.5],
    ['ctc', 'config.json', 'conv_stride', [1e9, 1, 1]],
    ['ctc', 'config.json', 'conv_kernel', Array(900).fill(1)],
    ['ctc', 'preprocessor_config.json', 'sampling_rate', 1e15],
    ['encoder', 'config.json', 'pad_token_id', 1.5],
  ])('of %s: %s with an absurd %s is refused', async (name, file, field, value) => {
    const { fixture, load } = LOADERS[name] as Loader
    const folder = copyOf(fixture)
    const path = join(folder, file)
    const config = JSON.parse(readFileSync(path, 'utf8')) as object
    writeFileSync(path, JSON.stringify({ ...config, [field]: value }))
    await expect(load(folder)).rejects.toThrow(/whole number|blocks|input channels/)
  })
})

describe('the head of an encoder', () => {
  const folderWith = (modules: readonly object[]): string => {
    const folder = copyOf('minilm')
    writeFileSync(join(folder, 'modules.json'), JSON.stringify(modules))
    return folder
  }
  const dense = (path: string) => [{ path: '' }, { type: 'x.Dense', path }]

  it('reads no module above its folder', async () => {
    const folder = folderWith(dense('../../other'))
    mkdirSync(join(root, 'other'))
    writeFileSync(join(root, 'other/config.json'), '{}')
    expect((await readSentenceHead(folder)).problem).toContain("outside the model's folder")
  })

  it('has a few modules at most', async () => {
    const folder = folderWith(Array.from({ length: 100_000 }, () => ({ type: 'x.Dropout' })))
    await expect(readSentenceHead(folder)).rejects.toThrow('more than 32 modules')
  })

  it.each(['constructor', '__proto__', 'toString'])('has no activation %s', async (name) => {
    const folder = folderWith(dense('2_Dense'))
    mkdirSync(join(folder, '2_Dense'))
    const config = { in_features: 1, out_features: 1, activation_function: name }
    writeFileSync(join(folder, '2_Dense/config.json'), JSON.stringify(config))
    expect((await readSentenceHead(folder)).problem).toContain('is not supported')
  })

  it('has no tensors that overlap', async () => {
    const bytes = 1 << 20
    const tensor = { dtype: 'F32', shape: [bytes / 4], data_offsets: [0, bytes] }
    const names = Array.from({ length: 5000 }, (_, at) => [`t${at}`, tensor])
    const header = Buffer.from(JSON.stringify(Object.fromEntries(names)))
    const length = Buffer.alloc(8)
    length.writeBigUInt64LE(BigInt(header.length))
    const path = join(root, 'overlap.safetensors')
    writeFileSync(path, Buffer.concat([length, header, Buffer.alloc(bytes)]))
    await expect(readSafetensors(path)).rejects.toThrow('overlap')
  })
})

describe('lists of files', () => {
  it.each(['manifest.json', 'models.json'])('%s of gigabytes is not read', async (name) => {
    const folder = copyOf('minilm')
    const path = join(folder, name)
    writeFileSync(path, '')
    truncateSync(path, 3 * 2 ** 30)
    const read = name === 'models.json' ? loadCatalogue(path) : verifyFolder(folder)
    await expect(read).rejects.toThrow('bytes are more than')
  })

  it.each(['manifest.json', 'models.json'])('%s that is a pipe is not awaited', async (name) => {
    const folder = copyOf('minilm')
    const path = join(folder, name)
    execFileSync('mkfifo', [path])
    const read = name === 'models.json' ? loadCatalogue(path) : verifyFolder(folder)
    await expect(read).rejects.toThrow('is not a regular file')
  })
})
