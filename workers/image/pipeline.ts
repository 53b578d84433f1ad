import { pathInside } from '#workers/models/inside-folder.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import { type ClipTokenizer, readClipTokenizer } from './clip-tokenizer.ts'
import { type DiffusionFiles, readDiffusionFiles } from './diffusion-files.ts'
import { type Networks, openNetworks, type Volume } from './networks.ts'
import { normalNoise } from './noise.ts'
import { createNoiseScheduler } from './noise-schedulers/table.ts'
import type { NoiseScheduler } from './noise-schedulers/types.ts'
import { blankOut, type Pixels, type RedrawMask, shrinkMask, toPixels, toVolume } from './pixels.ts'
import { defaultsFor, embedGuidance, type StepDefaults } from './step-defaults.ts'

/** One image to generate. */
export interface ImageRequest {
  readonly prompt: string
  readonly negativePrompt: string
  readonly seed: number
  /** Its index among the images of one request: each gets noise of its own. */
  readonly image: number
  readonly steps: number
  /** 1 and below disable guidance. */
  readonly guidance: number
  /** The source image at the native size; pure noise when absent. */
  readonly source?: {
    readonly pixels: Pixels
    /** 1 where the image is regenerated; everywhere when absent. */
    readonly mask?: RedrawMask
    /** The share of the denoising steps that is applied to the source, 0 to 1. */
    readonly strength: number
  }
  /** Replaces the drawn noise. */
  readonly startNoise?: Float32Array
}

/** The abort signal and the progress callback of an image. */
interface ImageTools {
  readonly signal: AbortSignal
  onStep?(step: number): void
}

/** A loaded Stable Diffusion model. */
export interface DiffusionPipeline {
  /** Pixels per side of the generated images. */
  readonly nativeSize: number
  /** Description of the loaded model. */
  readonly modelFiles: readonly string[]
  /** The number of images that are worth computing in parallel. */
  readonly poolSize: number
  readonly defaults: StepDefaults
  readonly trainSteps: number
  /** The number of U-Net runs of a request: fewer than its steps with a strength below 1. */
  stepsOf(steps: number, strength: number): number
  draw(request: ImageRequest, tools: ImageTools): Promise<Pixels>
  /** The latents of the same image, before they are decoded. */
  drawLatents(request: ImageRequest, tools: ImageTools): Promise<Float32Array>
  close(): Promise<void>
}

interface Parts {
  readonly files: DiffusionFiles
  readonly tokenizer: ClipTokenizer
  readonly networks: Networks
}

/** Opens a folder with a `model_index.json`. */
export async function openPipeline(options: {
  readonly runtime: Runtime
  readonly folder: string
  readonly session?: SessionOptions
  /** Overrides `scheduler_config.json`. */
  readonly scheduler?: Record<string, unknown>
  /** Overrides the scheduler's defaults. */
  readonly defaults?: Partial<StepDefaults>
}): Promise<DiffusionPipeline> {
  const { runtime, folder, session, scheduler } = options
  const read = await readDiffusionFiles(folder)
  const files = { ...read, scheduler: scheduler ?? read.scheduler }
  createNoiseScheduler(files.scheduler, 1)
  const tokenizer = await readClipTokenizer(await pathInside(folder, 'tokenizer'))
  let numDrawn = 0
  const networks = await openNetworks(runtime, files, session, () => numDrawn === 1)
  const parts: Parts = { files, tokenizer, networks }
  const counted = async <Drawn>(draw: () => Promise<Drawn>): Promise<Drawn> => {
    numDrawn += 1
    try {
      return await draw()
    } finally {
      numDrawn -= 1
    }
  }
  const trainSteps = Number(files.scheduler.num_train_timesteps ?? 1000)
  return {
    nativeSize: files.latentSize * files.vaeFactor,
    modelFiles: Object.values(files.modelFiles),
    poolSize: networks.poolSize,
    defaults: {
      ...defaultsFor(files.scheduler, files.guidanceWidth !== undefined),
      ...options.defaults,
    },
    trainSteps,
    stepsOf: (steps, strength) =>
      callsLeft(createNoiseScheduler(files.scheduler, steps), steps, strength),
    drawLatents: (request, tools) => counted(() => drawLatents(parts, request, tools)),
    draw: (request, tools) =>
      counted(async () => {
        const latents = await drawLatents(parts, request, tools)
        return toPixels(await networks.decodeLatents(latentVolume(files, latents), tools.signal))
      }),
    close: () => networks.close(),
  }
}

/**
 * Noise → U-Net → less noise, `steps` times. With a source the loop starts from its noised latents;
 * with a mask, latents outside of it are replaced by the equally noised source after every step
 * (Lugmayr et al. 2022), unless the U-Net takes mask and image itself.
 */
async function drawLatents(
  parts: Parts,
  request: ImageRequest,
  { signal, onStep }: ImageTools,
): Promise<Float32Array> {
  const { files, networks } = parts
  const { steps, source, seed, image } = request
  const scheduler = createNoiseScheduler(files.scheduler, steps)
  const length = files.latentChannels * files.latentSize ** 2
  const noise = request.startNoise ?? normalNoise({ seed, image, draw: 0 }, length)
  const condition = await conditionOf(parts, request, signal)
  const clean = source && (await networks.encodeImage(toVolume(source.pixels), signal))
  const first = source === undefined ? 0 : firstCall(scheduler, steps, source.strength)
  let latents = startLatents(scheduler, noise, clean, first)
  const mask = source?.mask && shrinkMask(source.mask, files.latentSize)
  const extra = await inpaintingChannels(parts, source, signal)
  const end = scheduler.timesteps.length
  for (let index = first; index < end; index++) {
    const prediction = await predict(parts, condition, { scheduler, latents, index, extra }, signal)
    latents = scheduler.step(prediction, latents, index, () =>
      normalNoise({ seed, image, draw: index + 1 }, length),
    )
    if (mask !== undefined && clean !== undefined) {
      const isLast = index === end - 1
      const known = isLast ? clean : scheduler.addNoise(clean, noise, index + 1)
      latents = latents.map((value, i) =>
        mask[i % mask.length] === 1 ? value : (known[i] as number),
      )
    }
    onStep?.(index - first + 1)
  }
  return latents
}

function callsLeft(scheduler: NoiseScheduler, steps: number, strength: number): number {
  return scheduler.timesteps.length - firstCall(scheduler, steps, strength)
}

/** The run of the U-Net with which the share of the steps that `strength` asks for begins. */
function firstCall(scheduler: NoiseScheduler, steps: number, strength: number): number {
  const first = Math.min(steps - 1, steps - Math.min(steps, Math.floor(steps * strength)))
  return first * (scheduler.callsPerStep ?? 1)
}

function startLatents(
  scheduler: NoiseScheduler,
  noise: Float32Array,
  clean: Float32Array | undefined,
  first: number,
): Float32Array {
  // At full strength nothing of the source is left in the noise.
  if (clean === undefined || first === 0) {
    return noise.map((value) => value * scheduler.initNoiseSigma)
  }
  return scheduler.addNoise(clean, noise, first)
}

/** The hidden states of the prompt, and of the negative prompt when guidance is on. */
interface Condition {
  readonly texts: readonly Volume[]
  readonly guidance: number
  readonly embedding: Float32Array | undefined
}

async function conditionOf(
  { files, tokenizer, networks }: Parts,
  { prompt, negativePrompt, guidance }: ImageRequest,
  signal: AbortSignal,
): Promise<Condition> {
  const encode = (text: string) => networks.encodeText(tokenizer.encode(text), signal)
  const wanted = await encode(prompt)
  if (files.guidanceWidth !== undefined) {
    const embedding = embedGuidance(guidance, files.guidanceWidth)
    return { texts: [wanted], guidance, embedding }
  }
  const isGuided = guidance > 1 && prompt !== negativePrompt
  return {
    texts: isGuided ? [await encode(negativePrompt), wanted] : [wanted],
    guidance,
    embedding: undefined,
  }
}

async function predict(
  { files, networks }: Parts,
  { texts, guidance, embedding }: Condition,
  step: {
    readonly scheduler: NoiseScheduler
    readonly latents: Float32Array
    readonly index: number
    readonly extra: Float32Array | undefined
  },
  signal: AbortSignal,
): Promise<Float32Array> {
  const { scheduler, latents, index, extra } = step
  const scaled = scheduler.scaleInput(latents, index)
  const data = extra === undefined ? scaled : join(scaled, extra)
  const { latentSize: size, unetChannels } = files
  const [unwanted, wanted = unwanted] = await networks.predict(
    {
      sample: { data, dims: [1, unetChannels, size, size] },
      timestep: scheduler.timesteps[index] as number,
      texts,
      guidance: embedding,
    },
    signal,
  )
  // Ho and Salimans 2022, eq. 6: away from the negative prompt, towards the prompt.
  return (wanted as Float32Array).map(
    (value, i) => (unwanted?.[i] as number) + guidance * (value - (unwanted?.[i] as number)),
  )
}

/**
 * Mask and masked image for U-Nets with 9 channels; without a source, everything is regenerated.
 */
async function inpaintingChannels(
  { files, networks }: Parts,
  source: ImageRequest['source'],
  signal: AbortSignal,
): Promise<Float32Array | undefined> {
  const { latentSize: size, latentChannels, unetChannels } = files
  if (unetChannels === latentChannels) return undefined
  const side = size * files.vaeFactor
  const grey: Pixels = {
    data: new Uint8Array(3 * side * side).fill(128),
    width: side,
    height: side,
  }
  const { pixels, mask } =
    source?.mask === undefined
      ? { pixels: grey, mask: new Float32Array(size ** 2).fill(1) }
      : { pixels: blankOut(source.pixels, source.mask), mask: shrinkMask(source.mask, size) }
  const masked = await networks.encodeImage(toVolume(pixels), signal)
  return join(mask, masked)
}

function join(first: Float32Array, second: Float32Array): Float32Array {
  const joined = new Float32Array(first.length + second.length)
  joined.set(first)
  joined.set(second, first.length)
  return joined
}

function latentVolume({ latentChannels, latentSize }: DiffusionFiles, data: Float32Array): Volume {
  return { data, dims: [1, latentChannels, latentSize, latentSize] }
}
