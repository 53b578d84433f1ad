import { cp, mkdtemp, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeEach, describe, expect, it } from 'vitest'

import { readClipTokenizer } from '#workers/image/clip-tokenizer.ts'
import { readDiffusionFiles } from '#workers/image/diffusion-files.ts'
import { createNoiseScheduler } from '#workers/image/noise-schedulers/table.ts'

const FIXTURE = join(import.meta.dirname, '../../../fixtures/models/stable-diffusion')
const parent = await mkdtemp(join(tmpdir(), 'millrace-diffusion-'))
const folder = join(parent, 'model')

beforeEach(async () => {
  await rm(folder, { recursive: true, force: true })
  await cp(FIXTURE, folder, { recursive: true })
})
afterAll(() => rm(parent, { recursive: true }))

async function change(path: string, values: Record<string, unknown>): Promise<void> {
  const file = join(folder, path)
  await writeFile(file, JSON.stringify({ ...JSON.parse(await readFile(file, 'utf8')), ...values }))
}

describe('a folder', () => {
  it.each([
    'StableDiffusionPipeline',
    'ORTStableDiffusionPipeline',
    'OnnxStableDiffusionInpaintPipeline',
    'LatentConsistencyModelPipeline',
    'ORTLatentConsistencyModelPipeline',
  ])('of the class %s is read', async (_class_name) => {
    await change('model_index.json', { _class_name })
    expect((await readDiffusionFiles(folder)).latentChannels).toBe(4)
  })

  it.each([
    'StableDiffusionXLControlNetPipeline',
    'StableDiffusion3Pipeline',
    'StableDiffusionInstructPix2PixPipeline',
    'StableDiffusionControlNetPipeline',
    'FluxPipeline',
  ])('of the class %s is refused, naming it', async (_class_name) => {
    await change('model_index.json', { _class_name })
    await expect(readDiffusionFiles(folder)).rejects.toThrow(_class_name)
  })

  it('is refused if its U-Net needs an unknown input', async () => {
    await change('unet/config.json', { in_channels: 8 })
    await expect(readDiffusionFiles(folder)).rejects.toThrow('8 input channels')
  })

  it('from the first exports has no configurations and is read as the first Stable Diffusion', async () => {
    await rm(join(folder, 'unet/config.json'))
    await rm(join(folder, 'vae_decoder/config.json'))
    expect(await readDiffusionFiles(folder)).toMatchObject({
      latentSize: 64,
      vaeFactor: 8,
      unetChannels: 4,
      scalingFactor: 0.18215,
    })
    await change('model_index.json', { _class_name: 'StableDiffusionPipeline' })
    await expect(readDiffusionFiles(folder)).rejects.toThrow('unet/config.json is missing')
  })

  it('may have its graphs in half precision under that name, and must have all of them', async () => {
    const unet = join(folder, 'unet/model_fp16.onnx')
    await rename(join(folder, 'unet/model.onnx'), unet)
    expect((await readDiffusionFiles(folder)).modelFiles.unet).toBe(unet)
    await rm(join(folder, 'vae_encoder'), { recursive: true })
    await expect(readDiffusionFiles(folder)).rejects.toThrow('vae_encoder/model.onnx is missing')
  })

  it('may contain numbers that JSON does not allow, as diffusers writes them', async () => {
    const config = { _class_name: 'DPMSolverMultistepScheduler', beta_schedule: 'scaled_linear' }
    const text = JSON.stringify({ ...config, lambda_min_clipped: 0 })
    const file = join(folder, 'scheduler/scheduler_config.json')
    await writeFile(file, text.replace(':0', ': -Infinity'))
    const { scheduler } = await readDiffusionFiles(folder)
    expect(createNoiseScheduler(scheduler, 4).timesteps).toHaveLength(4)
  })
})

// Recorded from transformers 5.23.0, CLIPTokenizer.from_pretrained of the same files.
describe('a tokenizer of the second Stable Diffusion', () => {
  const markers = { pad_token: '!', unk_token: '<|endoftext|>' }
  it.each([
    ['a red!', [684, 320, 561, 0, 685, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
    ['! !! !!!', [684, 0, 0, 0, 0, 0, 0, 685, 0, 0, 0, 0, 0, 0, 0, 0]],
    ['hey!you', [684, 71, 588, 0, 88, 78, 340, 685, 0, 0, 0, 0, 0, 0, 0, 0]],
    ['', [684, 685, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
  ])('pads as the file beside its configuration says: %s', async (prompt, ids) => {
    await change('tokenizer/special_tokens_map.json', markers)
    const tokenizer = await readClipTokenizer(join(folder, 'tokenizer'))
    expect(tokenizer.encode(prompt)).toEqual(ids)
  })

  it('pads as its configuration says if that lists the markers', async () => {
    await change('tokenizer/special_tokens_map.json', markers)
    await change('tokenizer/tokenizer_config.json', { added_tokens_decoder: {} })
    const tokenizer = await readClipTokenizer(join(folder, 'tokenizer'))
    expect(tokenizer.encode('').slice(0, 3)).toEqual([684, 685, 685])
  })

  it.each([
    [3, 3],
    [999, 999],
    [2, 77],
    [1000, 77],
    ['many', 77],
  ])('with %j as the length of texts has one of %i tokens', async (stated, length) => {
    await change('tokenizer/tokenizer_config.json', { model_max_length: stated })
    const tokenizer = await readClipTokenizer(join(folder, 'tokenizer'))
    expect([tokenizer.length, tokenizer.encode('a red circle').length]).toEqual([length, length])
  })
})

describe('a hostile folder', () => {
  it.each([
    'model_index.json',
    'unet/config.json',
    'vae_decoder/config.json',
    'scheduler/scheduler_config.json',
  ])('with gigabytes in %s is refused before it is read', async (path) => {
    await truncate(join(folder, path), 3 * 2 ** 30)
    await expect(readDiffusionFiles(folder)).rejects.toThrow('bytes are more than')
  })

  it.each(['tokenizer_config.json', 'special_tokens_map.json', 'vocab.json', 'merges.txt'])(
    'with gigabytes in tokenizer/%s is refused before it is read',
    async (name) => {
      await writeFile(join(folder, 'tokenizer', name), '')
      await truncate(join(folder, 'tokenizer', name), 3 * 2 ** 30)
      await expect(readClipTokenizer(join(folder, 'tokenizer'))).rejects.toThrow(
        'bytes are more than',
      )
    },
  )

  it('with a token id of billions is refused', async () => {
    await change('tokenizer/vocab.json', { zzz: 4_294_967_294 })
    await expect(readClipTokenizer(join(folder, 'tokenizer'))).rejects.toThrow('not a token id')
  })
})
