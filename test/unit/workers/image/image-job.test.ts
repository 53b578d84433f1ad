import { mkdtemp, rm } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'

import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { ImageInput, PartialImage } from '#shared/contracts/image.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { readObject } from '#shared/storage/object-store.ts'
import type { DrawnStep } from '#workers/image/image-request.ts'
import { openPipeline } from '#workers/image/pipeline.ts'
import { processImage } from '#workers/processors/image.ts'
import type { JobReplies } from '#workers/processors/processor-row.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

const FOLDER = join(import.meta.dirname, '../../../fixtures/models/stable-diffusion')
const SIDE = 24
const COMMON = { n: 1, width: SIDE, height: SIDE, seed: 7, steps: 3 }
const XL_FOLDER = join(import.meta.dirname, '../../../fixtures/models/stable-diffusion-xl')
const runtime = openRuntime()
const folder = await mkdtemp(join(tmpdir(), 'millrace-images-'))
const storage = openDirectoryStore(folder)
const pipeline = await openPipeline({ runtime, folder: FOLDER })
const xl = await openPipeline({ runtime, folder: XL_FOLDER })
let runs = 0

afterAll(async () => {
  await runtime.close()
  await rm(folder, { recursive: true })
})

/** Runs a job; what it replied, and the pixels of its images. */
async function draw(
  input: Partial<ImageInput> & Pick<ImageInput, 'task'>,
  onProgress: (step: number) => void = () => {},
  signal = new AbortController().signal,
  model = pipeline,
) {
  runs += 1
  const outputPrefix = `out/${runs}`
  const progress: string[] = []
  const partials: (PartialImage & { step: number })[] = []
  const keys: string[] = []
  const reply = {
    started: () => progress.push('started'),
    progress(step: number, steps: number, report?: { partialImage?: PartialImage }) {
      if (report?.partialImage !== undefined) {
        partials.push({ ...report.partialImage, step })
        return
      }
      progress.push(`${step}/${steps}`)
      onProgress(step)
    },
    result: ({ imageKeys }: { imageKeys: readonly string[] }) => keys.push(...imageKeys),
    delta: () => {},
  } as unknown as JobReplies<'image'>
  const job = { input: { ...COMMON, outputPrefix, ...input }, enqueuedAtMs: 0 }
  await processImage(job as unknown as JobEnvelope<'image'>, {
    model: { pipeline: model, storage },
    reply,
    signal,
    clock: systemClock,
  })
  const files = await Promise.all(keys.map((key) => readObject(storage, key, 1e6)))
  const images = await Promise.all(
    files.map((file) => sharp(file).raw().toBuffer({ resolveWithObject: true })),
  )
  return {
    progress,
    partials,
    keys,
    files,
    images: images.map(({ data }) => data),
    info: images[0]?.info,
  }
}

/** Stores an image with a colour per pixel; the left half transparent where asked for. */
async function store(key: string, { isCut = false, side = SIDE } = {}): Promise<Buffer> {
  const pixels = Buffer.alloc(side * side * 4)
  for (let i = 0; i < side * side; i++) {
    const isLeft = i % side < side / 2
    pixels.set([(i * 7) % 256, (i * 13) % 256, (i * 29) % 256, isCut && isLeft ? 0 : 255], 4 * i)
  }
  const raw = { width: side, height: side, channels: 4 as const }
  await storage.put(key, await sharp(pixels, { raw }).png().toBuffer())
  return pixels
}

describe('generating', () => {
  it('takes missing settings from the model, and then from its scheduler', async () => {
    const own = await openPipeline({ runtime, folder: FOLDER, defaults: { guidance: 3 } })
    expect(own.defaults).toEqual({ ...pipeline.defaults, guidance: 3 })
    await own.close()
  })

  it('stores images of the asked size and reports every step', async () => {
    const { progress, keys, info, images } = await draw({ task: 'generate', prompt: 'a', n: 2 })
    expect(progress).toEqual(['started', '1/6', '2/6', '3/6', '4/6', '5/6', '6/6'])
    expect(keys).toEqual([expect.stringMatching(/\/0\.png$/), expect.stringMatching(/\/1\.png$/)])
    expect(info).toMatchObject({ width: SIDE, height: SIDE, channels: 3 })
    expect(images[0]).not.toEqual(images[1])
  })

  it('draws the same for the same seed, beside any other image', async () => {
    const [alone] = (await draw({ task: 'generate', prompt: 'a' })).images
    expect(pipeline.poolSize).toBe(Math.min(2, availableParallelism()))
    // The sessions for images side by side are loaded while the first ones are drawn.
    for (const n of [2, 3, 3]) {
      const { images } = await draw({ task: 'generate', prompt: 'a', n })
      expect(images).toHaveLength(n)
      expect(images[0]).toEqual(alone)
    }
  })

  it.each([
    ['prompt', { prompt: 'a blue square' }],
    ['seed', { seed: 8 }],
    ['steps', { steps: 4 }],
    ['guidance', { guidanceScale: 1 }],
    ['negative prompt', { negativePrompt: 'a red circle' }],
  ])('lets the %s change the image', async (_name, change) => {
    const plain = await draw({ task: 'generate', prompt: 'a' })
    const changed = await draw({ task: 'generate', prompt: 'a', ...change })
    expect(changed.images[0]).not.toEqual(plain.images[0])
  })

  it.each([1, 3])('stops between two steps of %i images when it is cancelled', async (n) => {
    const abort = new AbortController()
    const seen: number[] = []
    const running = draw(
      { task: 'generate', prompt: 'a', steps: 50, n },
      (step) => {
        seen.push(step)
        if (step === 2) abort.abort()
      },
      abort.signal,
    )
    await expect(running).rejects.toMatchObject({ name: 'CancelledError' })
    expect(seen).toEqual([1, 2])
  })

  it('ends the other images when one cannot be stored', async () => {
    const full = new Error('the disk is full')
    const put = vi.spyOn(storage, 'put').mockRejectedValueOnce(full)
    const running = draw({ task: 'generate', prompt: 'a', n: 10 })
    await expect(running).rejects.toBe(full)
    // At most the one that was being drawn beside it was still stored.
    expect(put.mock.calls.length).toBeLessThanOrEqual(2)
    put.mockRestore()
  })
})

describe('editing', () => {
  let original: Buffer

  beforeAll(async () => {
    original = await store('whole')
    await store('cut', { isCut: true })
    await store('small', { isCut: true, side: SIDE / 2 })
  })

  it.each([
    ['a mask', { imageKey: 'whole', maskKey: 'cut' }],
    ['the transparency of the image', { imageKey: 'cut' }],
    ['a mask, with Stable Diffusion XL', { imageKey: 'whole', maskKey: 'cut' }, xl],
  ])('redraws what %s says and keeps every other pixel', async (_name, keys, model = pipeline) => {
    const job = { task: 'edit', prompt: 'a', ...keys } as const
    const { images } = await draw(job, undefined, undefined, model)
    const drawn = images[0] as Buffer
    const changed = new Set<string>()
    for (let i = 0; i < SIDE * SIDE; i++) {
      const before = original.subarray(4 * i, 4 * i + 3)
      if (before.equals(drawn.subarray(3 * i, 3 * i + 3))) continue
      changed.add(i % SIDE < SIDE / 2 ? 'left' : 'right')
    }
    expect([...changed]).toEqual(['left'])
  })

  it.each([
    ['without an alpha channel', 'opaque'],
    ['whose alpha channel is opaque', 'whole'],
  ])('redraws all of an image %s', async (_name, imageKey) => {
    const opaque = sharp(await readObject(storage, 'whole', 1e6)).removeAlpha()
    await storage.put('opaque', await opaque.png().toBuffer())
    const { images } = await draw({ task: 'edit', prompt: 'a', imageKey })
    const drawn = images[0] as Buffer
    const rows = Array.from({ length: SIDE }, (_, y) => y * SIDE)
    const isKept = (row: number) =>
      original.subarray(4 * row, 4 * row + 3).equals(drawn.subarray(3 * row, 3 * row + 3))
    expect(rows.filter(isKept).length).toBeLessThan(SIDE / 2)
  })

  it('refuses a mask of another size', async () => {
    const keys = { imageKey: 'whole', maskKey: 'small' }
    const running = draw({ task: 'edit', prompt: 'a', ...keys })
    await expect(running).rejects.toMatchObject({ kind: 'invalidRequest', param: 'mask' })
  })
})

describe('a variation', () => {
  it('depends on its image and on the strength', async () => {
    await store('source')
    await store('other', { isCut: true })
    const drawFrom = async (imageKey: string, strength?: number) => {
      const options = strength === undefined ? {} : { strength }
      const { images, progress } = await draw({
        task: 'variation',
        imageKey,
        steps: 4,
        ...options,
      })
      return { image: images[0], steps: progress.length - 1 }
    }
    const half = await drawFrom('source')
    expect(half.steps).toBe(2)
    expect((await drawFrom('source', 0.5)).image).toEqual(half.image)
    expect((await drawFrom('other')).image).not.toEqual(half.image)
    const strong = await drawFrom('source', 0.75)
    expect(strong.steps).toBe(3)
    expect(strong.image).not.toEqual(half.image)
  })

  it.each([
    ['no image', Buffer.from('hello')],
    ['a truncated file', Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex')],
    ['a header of 50,000 × 50,000 pixels', hugePng()],
  ])('refuses %s, naming the field', async (_name, bytes) => {
    await storage.put('bad', bytes)
    const running = draw({ task: 'variation', imageKey: 'bad' })
    await expect(running).rejects.toMatchObject({ kind: 'invalidRequest', param: 'image' })
  })
})

/** Signature and header of a PNG and nothing else. */
function hugePng(): Buffer {
  const side = 'c350'
  return Buffer.from(
    `89504e470d0a1a0a0000000d494844520000${side}0000${side}0806000000f2d3b3f20000000049454e44ae426082`,
    'hex',
  )
}

it.each(['jpeg', 'webp'] as const)('writes %s files of the asked quality', async (format) => {
  const request = { task: 'generate', prompt: 'a cat', format } as const
  const [small, large] = await Promise.all([0, 100].map((quality) => draw({ ...request, quality })))
  expect(small?.keys[0]).toMatch(new RegExp(`\\.${format}$`))
  expect((await sharp(small?.files[0]).metadata()).format).toBe(format)
  expect(small?.files[0]?.length).toBeLessThan(large?.files[0]?.length ?? 0)
})

describe('images on the way', () => {
  const read = async (key: string) =>
    sharp(await readObject(storage, key, 1e6))
      .raw()
      .toBuffer()

  it.each([
    [0, 8, []],
    [1, 8, [4]],
    [3, 8, [2, 4, 6]],
    // As many as there are runs before the last.
    [3, 3, [1, 2]],
    [3, 1, []],
  ])('of %i in %i steps are stored after equal distances', async (partialImages, steps, wanted) => {
    const { partials } = await draw({ task: 'generate', prompt: 'a', steps, partialImages })
    expect(partials.map(({ step }) => step)).toEqual(wanted)
    expect(partials.map(({ image, index }) => [image, index])).toEqual(
      wanted.map((_step, index) => [0, index]),
    )
  })

  it('have the size and format of the image, approach it and do not change it', async () => {
    const job = { task: 'generate', prompt: 'a', steps: 12 } as const
    const [alone] = (await draw(job)).images as [Buffer]
    const { images, partials } = await draw({ ...job, partialImages: 3 })
    expect(images[0]).toEqual(alone)
    const distances: number[] = []
    for (const { key } of partials) {
      const partial = await read(key)
      expect(partial).toHaveLength(alone.length)
      distances.push(partial.reduce((sum, value, i) => sum + Math.abs(value - (alone[i] ?? 0)), 0))
    }
    expect(distances.toSorted((a, b) => b - a)).toEqual(distances)
    expect(distances.at(-1)).toBeGreaterThan(0)
  })

  it('of an edit keep every pixel outside of the mask', async () => {
    const original = await store('whole')
    await store('cut', { isCut: true })
    const keys = { imageKey: 'whole', maskKey: 'cut' }
    const job = { task: 'edit', prompt: 'a', ...keys, steps: 4, partialImages: 1 } as const
    const [partial] = (await draw(job)).partials
    const pixels = await read(partial?.key ?? '')
    for (let i = 0; i < SIDE * SIDE; i++) {
      if (i % SIDE < SIDE / 2) continue
      expect(pixels.subarray(3 * i, 3 * i + 3)).toEqual(original.subarray(4 * i, 4 * i + 3))
    }
  })
})

describe('Stable Diffusion XL', () => {
  it('is varied by prompt, size and strength, and repeated by the seed', async () => {
    const drawXl = async (input: Partial<ImageInput>) => {
      const job = { task: 'generate', prompt: 'a', ...input } as const
      return (await draw(job, undefined, undefined, xl)).images[0]
    }
    const plain = await drawXl({})
    expect(await drawXl({})).toEqual(plain)
    expect(await drawXl({ prompt: 'a blue square' } as Partial<ImageInput>)).not.toEqual(plain)
    expect(await drawXl({ negativePrompt: 'a blue square' })).not.toEqual(plain)
    expect(await drawXl({ width: 48 })).toHaveLength(3 * 48 * SIDE)
    await store('source')
    const source = { task: 'variation', imageKey: 'source' } as Partial<ImageInput>
    const weak = await drawXl(source)
    expect(await drawXl({ ...source, strength: 0.9 } as Partial<ImageInput>)).not.toEqual(weak)
  })

  it('refuses to draw from nothing with a refiner, naming the field', async () => {
    const running = draw({ task: 'generate', prompt: 'a' }, undefined, undefined, {
      ...xl,
      isRefiner: true,
    })
    await expect(running).rejects.toMatchObject({ kind: 'invalidRequest', param: 'model' })
  })
})

describe('noise schedulers', () => {
  const drawWith = async (scheduler: Record<string, unknown>, image: number) => {
    const own = await openPipeline({ runtime, folder: FOLDER, scheduler })
    const steps: number[] = []
    const source = {
      pixels: {
        data: new Uint8Array(3 * own.nativeSize ** 2).fill(90),
        width: own.nativeSize,
        height: own.nativeSize,
      },
      strength: 0.5,
    }
    const common = { prompt: 'a cat', negativePrompt: '', seed: 7, steps: 4, guidance: 1 }
    const tools = {
      signal: new AbortController().signal,
      onStep: ({ step }: DrawnStep) => void steps.push(step),
    }
    const latents = await own.drawLatents({ ...common, image, source }, tools)
    return { latents, steps, expected: own.stepsOf(4, 0.5) }
  }

  it.each([
    ['HeunDiscreteScheduler', 3],
    ['KDPM2AncestralDiscreteScheduler', 3],
    ['UniPCMultistepScheduler', 2],
    ['LMSDiscreteScheduler', 2],
    ['TCDScheduler', 2],
    ['DDPMScheduler', 2],
  ])(
    '%s draws each image from the seed alone, in %i runs for half the strength',
    async (name, runsWanted) => {
      const scheduler = { _class_name: name, beta_start: 0.00085, beta_end: 0.012 }
      const [first, again, other] = [
        await drawWith(scheduler, 0),
        await drawWith(scheduler, 0),
        await drawWith(scheduler, 1),
      ]
      expect(first.steps).toHaveLength(runsWanted)
      expect(first.expected).toBe(runsWanted)
      expect(first.latents.every(Number.isFinite)).toBe(true)
      expect(again.latents).toEqual(first.latents)
      expect(other.latents).not.toEqual(first.latents)
    },
  )
})
