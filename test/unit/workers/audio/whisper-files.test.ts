import { cp, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeEach, expect, it } from 'vitest'

import { readWhisperFiles } from '#workers/audio/whisper-files.ts'

const FIXTURE = join(import.meta.dirname, '../../../fixtures/models/whisper')
const parent = await mkdtemp(join(tmpdir(), 'millrace-whisper-'))
const folder = join(parent, 'model')
const place = (name: string) => join(folder, name)

beforeEach(async () => {
  await rm(folder, { recursive: true, force: true })
  await cp(FIXTURE, folder, { recursive: true })
})
afterAll(() => rm(parent, { recursive: true }))

it('reads the features from the place of newer exports', async () => {
  const { mel } = await readWhisperFiles(folder)
  const features = JSON.parse(await readFile(place('preprocessor_config.json'), 'utf8'))
  await rm(place('preprocessor_config.json'))
  await writeFile(place('processor_config.json'), JSON.stringify({ feature_extractor: features }))
  expect((await readWhisperFiles(folder)).mel).toEqual(mel)
})

it('uses the usual features, in as many bands as the model has, without a file that states them', async () => {
  await rm(place('preprocessor_config.json'))
  const config = JSON.parse(await readFile(place('config.json'), 'utf8'))
  await writeFile(place('config.json'), JSON.stringify({ ...config, num_mel_bins: 128 }))
  expect((await readWhisperFiles(folder)).mel).toEqual({
    sampleRate: 16_000,
    hopSamples: 160,
    windowSamples: 400,
    melBins: 128,
    chunkSamples: 480_000,
  })
})

it('does without the files that some exports lack', async () => {
  await rm(place('generation_config.json'))
  await rm(place('tokenizer_config.json'))
  const { generation, tokenizer } = await readWhisperFiles(folder)
  expect(generation).toMatchObject({ suppressedTokens: [], maxInitialTimestampIndex: 50 })
  expect(tokenizer.config).toEqual({})
})

it.each(['_fp16', '_q4', '_q4f16', '_bnb4', '_quantized'])(
  'finds graphs by the names of the hub: %s',
  async (suffix) => {
    const stems = ['encoder_model', 'decoder_model_merged']
    for (const stem of stems) {
      await rename(place(`onnx/${stem}.onnx`), place(`onnx/${stem}${suffix}.onnx`))
    }
    expect(await readWhisperFiles(folder)).toMatchObject({
      encoderFile: place(`onnx/encoder_model${suffix}.onnx`),
      decoderFiles: [place(`onnx/decoder_model_merged${suffix}.onnx`)],
    })
  },
)

it.each(['config.json', 'tokenizer.json'])(
  'names %s where it is missing or broken',
  async (name) => {
    await writeFile(place(name), '{')
    await expect(readWhisperFiles(folder)).rejects.toThrow(`${name} is not JSON`)
    await rm(place(name))
    await expect(readWhisperFiles(folder)).rejects.toThrow(`${name} is missing`)
  },
)
