import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { readClipTokenizer } from '#workers/image/clip-tokenizer.ts'
import { readDiffusionFiles } from '#workers/image/diffusion-files.ts'
import { openNetworks } from '#workers/image/networks.ts'
import { openPipeline } from '#workers/image/pipeline.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Recorded from diffusers by test/fixtures/build-models.py.
interface Golden {
  readonly prompt: string
  readonly negative: string
  readonly ids: number[]
  readonly tokens: { text: string; ids: number[] }[]
  readonly start: number[]
  readonly image: number[]
  readonly text: number[]
  readonly timestep: number
  readonly unet: number[]
  readonly vaeEncoder: number[]
  readonly vaeDecoder: number[]
  readonly pipelines: {
    scheduler: string
    config: Record<string, unknown>
    guidance: number
    steps: number
    latents: number[]
    firstRowRgb: number[][]
  }[]
}

const FOLDER = join(import.meta.dirname, '../fixtures/models/stable-diffusion')
const golden: Golden = JSON.parse(readFileSync(join(FOLDER, 'golden.json'), 'utf8'))
const { signal } = new AbortController()
const runtime = openRuntime()
const files = await readDiffusionFiles(FOLDER)
const tokenizer = await readClipTokenizer(join(FOLDER, 'tokenizer'))
const networks = await openNetworks(runtime, files)

afterAll(() => runtime.close())

describe('the prompt', () => {
  it('becomes the ids of the reference, padded to the length of the text encoder', () => {
    expect(tokenizer.encode(golden.prompt)).toEqual(golden.ids)
    for (const { text, ids } of golden.tokens) {
      expect(tokenizer.encode(text).slice(0, ids.length)).toEqual(ids)
    }
  })

  it('is truncated if it is too long, and still has its end token', () => {
    const ids = tokenizer.encode('a very red circle '.repeat(50))
    expect(ids).toHaveLength(tokenizer.length)
    expect(ids.at(-1)).toBe(golden.ids.at(-1))
  })
})

describe('the networks', () => {
  const latents = { data: Float32Array.from(golden.start), dims: [1, 4, 8, 8] }

  it('give the values of the reference for text and latents', async () => {
    const text = await networks.encode(golden.prompt, signal)
    expectClose(text.states.data.slice(-golden.text.length), golden.text)
    const row = { sample: latents, timestep: golden.timestep, text }
    const [one] = await networks.predict([row], signal)
    expectClose(one as Float32Array, golden.unet)
    const both = await networks.predict([row, row], signal)
    for (const prediction of both) expectClose(prediction, golden.unet)
  })

  it('encode and decode images as the reference does', async () => {
    const image = { data: Float32Array.from(golden.image), dims: [1, 3, 16, 16] }
    const encoded = await networks.encodeImage(image, signal)
    const mean = golden.vaeEncoder.slice(0, 256).map((value) => value * files.scalingFactor)
    expectClose(encoded, mean)
    const scaled = { ...latents, data: latents.data.map((value) => value * files.scalingFactor) }
    const decoded = await networks.decodeLatents(scaled, signal)
    expectClose(decoded.data.slice(0, golden.vaeDecoder.length), golden.vaeDecoder)
  })
})

it.each(golden.pipelines)('draws as $scheduler with guidance $guidance', async (row) => {
  const scheduler = { ...row.config, _class_name: row.scheduler }
  const pipeline = await openPipeline({ runtime, folder: FOLDER, scheduler })
  const request = {
    prompt: golden.prompt,
    negativePrompt: golden.negative,
    seed: 1,
    image: 0,
    steps: row.steps,
    guidance: row.guidance,
    // The recorded pipelines take their latents before these are scaled to the first noise level.
    startNoise: Float32Array.from(golden.start),
  }
  expectClose(await pipeline.drawLatents(request, { signal }), row.latents)
  const { data } = await pipeline.draw(request, { signal })
  const expected = row.firstRowRgb.flat().map((value) => value * 255)
  expectClose(data.slice(0, expected.length), expected, 1)
  await pipeline.close()
})

function expectClose(actual: ArrayLike<number>, expected: readonly number[], tolerance = 5e-3) {
  expect(actual).toHaveLength(expected.length)
  const distances = expected.map((value, i) => Math.abs(value - (actual[i] as number)))
  expect(Math.max(...distances)).toBeLessThan(tolerance)
}
