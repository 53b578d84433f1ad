import { readFileSync } from 'node:fs'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'

import { readClipTokenizer } from '#workers/image/clip-tokenizer.ts'
import { readDiffusionFiles } from '#workers/image/diffusion-files.ts'
import type { DrawnStep } from '#workers/image/image-request.ts'
import { type DiffusionPipeline, openPipeline } from '#workers/image/pipeline.ts'
import { openVae, type Vae } from '#workers/image/vae.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { ModelSession } from '#workers/runtime/session.ts'

interface Recorded {
  readonly guidance: number
  readonly steps: number
  readonly negative: string
  /** After each step. */
  readonly latents: number[][]
}

interface RecordedPipeline extends Recorded {
  readonly scheduler: string
  readonly config: Record<string, unknown>
  /** The clean latents that are expected in each step. */
  readonly clean: number[][]
  readonly width: number
  readonly height: number
  /** 0 to 255, interleaved. */
  readonly pixels: number[]
}

/** Recorded from diffusers by test/fixtures/builders/diffusion_xl.py. */
interface Golden {
  readonly prompt: string
  readonly ids: number[][]
  readonly image: number[]
  readonly pipelines: RecordedPipeline[]
  readonly fromImage: (Recorded & { readonly strength: number })[]
  readonly refined: (Recorded & { readonly strength: number })[]
  readonly tiled: {
    readonly width: number
    readonly height: number
    /** The first channel. */
    readonly decoded: number[]
    readonly encoded: number[]
  }
  readonly normalized: RecordedPipeline & { readonly mean: number[]; readonly std: number[] }
}

const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const FOLDER = join(FIXTURES, 'stable-diffusion-xl')
const SIDE = 16
const golden: Golden = JSON.parse(readFileSync(join(FOLDER, 'golden.json'), 'utf8'))
const { signal } = new AbortController()
const runtime = openRuntime()
const parent = await mkdtemp(join(tmpdir(), 'millrace-xl-'))

afterAll(async () => {
  await runtime.close()
  await rm(parent, { recursive: true })
})

/** The starting noise of the recorded pipelines. */
function noise(length: number): Float32Array {
  return Float32Array.from({ length }, (_, i) => {
    return Math.round(1.2 * Math.sin(0.7 * i ** 1.1) * 1e6) / 1e6
  })
}

/** The latents after each step. */
async function drawSteps(
  pipeline: DiffusionPipeline,
  { guidance, steps, negative }: Recorded,
  rest: { width?: number; height?: number; strength?: number } = {},
) {
  const { width = SIDE, height = SIDE, strength } = rest
  const source = { pixels: { data: Uint8Array.from(golden.image), width: SIDE, height: SIDE } }
  const request = {
    prompt: golden.prompt,
    negativePrompt: negative,
    seed: 1,
    image: 0,
    steps,
    guidance,
    startNoise: noise(width * height),
    size: { width, height },
    ...(strength !== undefined && { source: { ...source, strength } }),
  }
  const seen: Float32Array[] = []
  const clean: Float32Array[] = []
  const onStep = (drawn: DrawnStep) => {
    seen.push(drawn.latents)
    clean.push(drawn.clean())
  }
  await pipeline.drawLatents(request, { signal, onStep })
  const { data } = await pipeline.draw(request, { signal })
  return { latents: seen, clean, pixels: data }
}

function expectClose(actual: ArrayLike<number>, expected: readonly number[], tolerance = 1e-4) {
  expect(actual).toHaveLength(expected.length)
  const distances = expected.map((value, i) => Math.abs(value - (actual[i] as number)))
  expect(Math.max(...distances)).toBeLessThan(tolerance)
}

/** Latents whose first ones are larger than 1 by the noise level are compared in its units. */
function expectSteps(actual: readonly Float32Array[], expected: readonly number[][]) {
  expect(actual).toHaveLength(expected.length)
  for (const [step, latents] of expected.entries()) {
    const scale = Math.max(1, ...latents.map(Math.abs))
    expectClose(actual[step] ?? [], latents, 1e-4 * scale)
  }
}

// Half a level of rounding.
const LEVEL = 0.51

describe('Stable Diffusion XL', () => {
  it('reads a prompt with both of its tokenizers', async () => {
    for (const [at, name] of ['tokenizer', 'tokenizer_2'].entries()) {
      const tokenizer = await readClipTokenizer(join(FOLDER, name))
      expect(tokenizer.encode(golden.prompt)).toEqual(golden.ids[at])
    }
  })

  it.each(golden.pipelines)(
    'takes the steps of $scheduler with guidance $guidance at $width x $height',
    async (row) => {
      const scheduler = { ...row.config, _class_name: row.scheduler }
      const pipeline = await openPipeline({ runtime, folder: FOLDER, scheduler, tileSize: 64 })
      const { latents, clean, pixels } = await drawSteps(pipeline, row, row)
      expectSteps(latents, row.latents)
      expectSteps(clean, row.clean)
      expectClose(pixels, row.pixels, LEVEL)
      await pipeline.close()
    },
  )

  it('begins with an image in the middle of the noise', async () => {
    const pipeline = await openPipeline({ runtime, folder: FOLDER })
    for (const row of golden.fromImage) {
      const { latents } = await drawSteps(pipeline, row, { strength: row.strength })
      expectSteps(latents, row.latents)
    }
    await pipeline.close()
  })

  it('draws as many pixels as it was trained on in other aspect ratios', async () => {
    const pipeline = await openPipeline({ runtime, folder: FOLDER })
    expect(pipeline.sizeFor({ width: 512, height: 512 })).toEqual({ width: 16, height: 16 })
    expect(pipeline.sizeFor({ width: 1536, height: 1024 })).toEqual({ width: 16, height: 8 })
    expect(pipeline.defaults).toEqual({ steps: 25, guidance: 5 })
    await pipeline.close()
  })

  it.each(['EulerDiscreteScheduler', 'EulerAncestralDiscreteScheduler'])(
    'is drawn in few steps where it was distilled for %s',
    async (_class_name) => {
      const scheduler = { _class_name, timestep_spacing: 'trailing' }
      const pipeline = await openPipeline({ runtime, folder: FOLDER, scheduler })
      expect(pipeline.defaults).toEqual({ steps: 4, guidance: 1 })
      await pipeline.close()
    },
  )
})

describe('the autoencoder of Stable Diffusion XL', () => {
  const { width, height, decoded, encoded } = golden.tiled
  const latents = { data: noise(4 * width * height), dims: [1, 4, height, width] }
  const open = async (tileSize?: number) => {
    const files = await readDiffusionFiles(FOLDER)
    return openVae(runtime, { ...files, ...(tileSize !== undefined && { tileSize }) }, {})
  }
  /** The latents as the U-Net has them, which are scaled before they are decoded. */
  const decode = async (vae: Vae) => {
    const scaled = { ...latents, data: latents.data.map((value) => value * 0.13025) }
    return (await vae.decodeLatents(scaled, signal)).data.slice(0, decoded.length)
  }

  it('decodes and encodes large images in blended tiles, as the reference does', async () => {
    const vae = await open()
    expectClose(await decode(vae), decoded)
    const values = Float32Array.from({ length: 3 * decoded.length }, (_, i) => Math.sin(0.01 * i))
    const image = { data: values, dims: [1, 3, 2 * height, 2 * width] }
    const scaled = encoded.map((value) => value * 0.13025)
    expectClose(await vae.encodeImage(image, signal), scaled)
    await vae.close()
  })

  it('runs at most a tile at a time, and images up to that size as a whole', async () => {
    const run = vi.spyOn(ModelSession.prototype, 'run')
    const vae = await open(32)
    const tiled = await decode(vae)
    const sizes = run.mock.calls.map(([{ latent_sample: tile }]) => tile?.dims.slice(2))
    expect(sizes.length).toBeGreaterThan(1)
    expect(sizes[0]).toEqual([16, 16])
    await vae.close()
    run.mockClear()
    const large = await open(64)
    const whole = await decode(large)
    expect(run.mock.calls).toHaveLength(1)
    await expect(async () => expectClose(whole, [...tiled])).rejects.toThrow()
    await large.close()
    run.mockRestore()
  })
})

describe('a folder of Stable Diffusion XL', () => {
  const folder = join(parent, 'changed')
  const change = async (name: string, values: object) => {
    const file = join(folder, name)
    const before = JSON.parse(await readFile(file, 'utf8'))
    await writeFile(file, JSON.stringify({ ...before, ...values }))
  }

  beforeAll(() => cp(FOLDER, folder, { recursive: true }))

  it('may state mean and deviation of its latents', async () => {
    const { mean, std, ...row } = golden.normalized
    const config = { latents_mean: mean, latents_std: std }
    await change('vae_decoder/config.json', config)
    const scheduler = { ...row.config, _class_name: row.scheduler }
    const pipeline = await openPipeline({ runtime, folder, scheduler })
    expectClose((await drawSteps(pipeline, row)).pixels, row.pixels, LEVEL)
    await pipeline.close()
    await change('vae_decoder/config.json', { ...config, latents_std: [1, 0, 1, 1] })
    await expect(openPipeline({ runtime, folder })).rejects.toThrow('no deviation 0')
    await change('vae_decoder/config.json', { latents_mean: null })
  })

  it('may encode empty texts instead of taking zeros for them', async () => {
    const [row] = golden.pipelines as [RecordedPipeline]
    await change('model_index.json', { force_zeros_for_empty_prompt: false })
    const pipeline = await openPipeline({ runtime, folder })
    const { latents } = await drawSteps(pipeline, row)
    await expect(async () => expectSteps(latents, row.latents)).rejects.toThrow()
    await pipeline.close()
  })

  it('with the refiner has one text encoder and an aesthetic score', async () => {
    const refiner = join(FIXTURES, 'stable-diffusion-xl-refiner')
    const own = join(parent, 'refiner')
    await cp(FOLDER, own, { recursive: true })
    await rm(join(own, 'text_encoder'), { recursive: true })
    await cp(refiner, own, { recursive: true })
    const pipeline = await openPipeline({ runtime, folder: own })
    expect(pipeline.isRefiner).toBe(true)
    for (const row of golden.refined) {
      const { latents } = await drawSteps(pipeline, row, { strength: row.strength })
      expectSteps(latents, row.latents)
    }
    await pipeline.close()
  })

  it('needs text encoders that return their hidden states', async () => {
    const older = join(FIXTURES, 'stable-diffusion/text_encoder/model.onnx')
    await cp(older, join(folder, 'text_encoder/model.onnx'))
    await expect(openPipeline({ runtime, folder })).rejects.toThrow('hidden_states.N')
  })
})
