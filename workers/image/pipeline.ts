import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import { conditionOf } from './conditions.ts'
import { type DiffusionFiles, readDiffusionFiles } from './diffusion-files.ts'
import { drawLatents, stepsLeft } from './draw-latents.ts'
import type { ImageRequest, ImageTools } from './image-request.ts'
import { type Networks, openNetworks } from './networks.ts'
import { createNoiseScheduler } from './noise-schedulers/table.ts'
import { fitSize, type ImageSize, type Pixels, toPixels } from './pixels.ts'
import { defaultsFor, type StepDefaults } from './step-defaults.ts'

/** A loaded Stable Diffusion model. */
export interface DiffusionPipeline {
  /** Pixels per side of the square images that the model was trained on. */
  readonly nativeSize: number
  /** Whether the model only refines images that another one has drawn. */
  readonly isRefiner: boolean
  /** The size to draw at for an image of this one. */
  sizeFor(wanted: ImageSize): ImageSize
  /** Description of the loaded model. */
  readonly modelFiles: readonly string[]
  /** The number of images that are worth computing in parallel. */
  readonly poolSize: number
  readonly defaults: StepDefaults
  readonly trainSteps: number
  /** The number of U-Net runs of a request: fewer than its steps with a strength below 1. */
  stepsOf(steps: number, strength: number): number
  draw(request: ImageRequest, tools: ImageTools): Promise<Pixels>
  /** Latents of an image of this size as pixels. */
  decode(latents: Float32Array, size: ImageSize, signal: AbortSignal): Promise<Pixels>
  /** The latents of the same image, before they are decoded. */
  drawLatents(request: ImageRequest, tools: ImageTools): Promise<Float32Array>
  close(): Promise<void>
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
  /** Overrides what the VAE computes at once. */
  readonly tileSize?: number
  /** Receives the number of rows of every run of the U-Net. */
  readonly onBatch?: (size: number) => void
}): Promise<DiffusionPipeline> {
  const { runtime, folder, session, scheduler } = options
  const read = await readDiffusionFiles(folder)
  const { tileSize = read.tileSize } = options
  const files = { ...read, tileSize, scheduler: scheduler ?? read.scheduler }
  createNoiseScheduler(files.scheduler, 1)
  let numDrawn = 0
  const networks = await openNetworks(runtime, files, session, {
    isAlone: () => numDrawn === 1,
    ...(options.onBatch !== undefined && { onBatch: options.onBatch }),
  })
  const counted = async <Drawn>(draw: () => Promise<Drawn>): Promise<Drawn> => {
    numDrawn += 1
    try {
      return await draw()
    } finally {
      numDrawn -= 1
    }
  }
  const { texts, modelFiles, xl, latentSize, vaeFactor } = files
  const nativeSize = latentSize * vaeFactor
  const square = { width: nativeSize, height: nativeSize }
  const drawAt = (request: ImageRequest, tools: ImageTools) =>
    drawRequest({ files, networks }, { size: square, ...request }, tools)
  const decode: DiffusionPipeline['decode'] = async (data, { width, height }, signal) => {
    const dims = [1, files.latentChannels, height / vaeFactor, width / vaeFactor]
    return toPixels(await networks.decodeLatents({ data, dims }, signal))
  }
  return {
    nativeSize,
    isRefiner: xl?.sizeConditions === 'aesthetics',
    // The older models were trained on squares alone.
    sizeFor: (wanted) =>
      xl === undefined || !networks.isResizable
        ? square
        : fitSize(wanted, nativeSize, files.latentStep * vaeFactor),
    modelFiles: [...texts.map(({ graph }) => graph), ...Object.values(modelFiles)],
    poolSize: networks.poolSize,
    defaults: { ...modelDefaults(files), ...options.defaults },
    trainSteps: Number(files.scheduler.num_train_timesteps ?? 1000),
    stepsOf: (steps, strength) =>
      stepsLeft(createNoiseScheduler(files.scheduler, steps), steps, strength),
    drawLatents: (request, tools) => counted(() => drawAt(request, tools)),
    draw: (request, tools) =>
      counted(async () => {
        const latents = await drawAt(request, tools)
        return decode(latents, request.size ?? square, tools.signal)
      }),
    decode,
    close: () => networks.close(),
  }
}

function modelDefaults({ scheduler, guidanceWidth, xl }: DiffusionFiles): StepDefaults {
  const about = { takesGuidance: guidanceWidth !== undefined, isXl: xl !== undefined }
  return defaultsFor(scheduler, about)
}

async function drawRequest(
  parts: { readonly files: DiffusionFiles; readonly networks: Networks },
  request: ImageRequest & { readonly size: ImageSize },
  tools: ImageTools,
): Promise<Float32Array> {
  const encode = (text: string) => parts.networks.encode(text, tools.signal)
  const condition = await conditionOf(parts.files, request, encode)
  return drawLatents(parts, { ...request, condition }, tools)
}
