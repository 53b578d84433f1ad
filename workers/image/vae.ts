import { Batcher } from '#workers/embedding/batcher.ts'
import { closeOnFailure, openAll } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'

import type { DiffusionFiles } from './diffusion-files.ts'
import { nameOf, runVolumes, type Volume } from './run-volumes.ts'
import { runTiled } from './tiles.ts'

/** The autoencoder between pixels and latents in the scale of the U-Net. */
export interface Vae {
  /** Whether it takes images of any size. */
  readonly isResizable: boolean
  /** Pixels in −1 … 1, `[1, 3, height, width]`, to latents. */
  encodeImage(image: Volume, signal: AbortSignal): Promise<Float32Array>
  /** `[1, channels, height, width]` to pixels. */
  decodeLatents(latents: Volume, signal: AbortSignal): Promise<Volume>
  close(): Promise<void>
}

// Tiles of this many latents, or a multiple, overlap by whole latents.
const TILE_STEP = 4

/**
 * Loads encoder and decoder of a folder. Images with more pixels than the square of `tileSize` are
 * processed in tiles, and one image at a time per session, so that the memory is bounded.
 */
export async function openVae(
  runtime: Runtime,
  files: DiffusionFiles,
  options: SessionOptions,
): Promise<Vae> {
  const { modelFiles, tileSize, vaeFactor } = files
  const open = (file: string) => openSessionPool(runtime, file, options)
  const pools = await openAll([open(modelFiles.encoder), open(modelFiles.decoder)])
  const close = async (): Promise<void> => {
    await Promise.all(pools.map((pool) => pool.close()))
  }
  const isResizable = pools.every(({ wide }) => hasFreeSides(wide))
  const tile = TILE_STEP * Math.floor(tileSize / vaeFactor / TILE_STEP)
  const [encoder, decoder] = pools.map((pool) => queueOf(runtime, pool)) as [Queue, Queue]
  return await closeOnFailure({ close }, () => {
    if (!isResizable) checkFixed(files)
    const isLarge = ({ dims }: Volume, pixelsPerValue: number) =>
      tile > 0 && (dims[2] as number) * (dims[3] as number) * pixelsPerValue ** 2 > tileSize ** 2
    return {
      isResizable,
      async encodeImage(image, signal) {
        const run = (part: Volume) => encoder.submit({ volume: part, signal }, signal)
        const sides = { inputSide: tile * vaeFactor, outputSide: tile }
        const found = isLarge(image, 1) ? await runTiled(image, sides, run) : await run(image)
        const { data, dims } = found
        const isMeanAndVariance = dims[1] === 2 * files.latentChannels
        return normalize(files, isMeanAndVariance ? data.subarray(0, data.length / 2) : data)
      },
      decodeLatents({ data, dims }, signal) {
        const latents = { data: denormalize(files, data), dims }
        const run = (part: Volume) => decoder.submit({ volume: part, signal }, signal)
        const sides = { inputSide: tile, outputSide: tile * vaeFactor }
        return isLarge(latents, vaeFactor) ? runTiled(latents, sides, run) : run(latents)
      },
      close,
    }
  })
}

type Queue = Batcher<{ readonly volume: Volume; readonly signal: AbortSignal }, Volume>

/** Processes one image after another in each session. */
function queueOf(runtime: Runtime, pool: SessionPool): Queue {
  return new Batcher({
    maxBatchTokens: 1,
    maxBatchSize: 1,
    poolSize: pool.poolSize,
    lengthOf: () => 1,
    run(images, isAlone) {
      const [{ volume, signal }] = images as [(typeof images)[0]]
      const session = pool.choose(isAlone)
      return runVolumes(runtime, session, { [nameOf(session.inputs)]: volume }, { signal })
    },
  })
}

/** Whether height and width of the images that a graph takes are free. */
export function hasFreeSides({ inputs }: Pick<ModelSession, 'inputs'>): boolean {
  const image = inputs.find(({ dims }) => dims.length === 4)
  return image?.dims.slice(2).every((side) => typeof side !== 'number') === true
}

function checkFixed({ tileSize, latentSize, vaeFactor, modelFiles }: DiffusionFiles): void {
  if (tileSize >= latentSize * vaeFactor) return
  throw new ModelLoadError(
    modelFiles.decoder,
    `tileSize ${tileSize} needs an autoencoder that takes images of any size`,
  )
}

/** Latents of the VAE in the scale of the U-Net. */
function normalize(
  { scalingFactor, shiftFactor, latentStatistics, latentChannels }: DiffusionFiles,
  latents: Float32Array,
): Float32Array {
  const plane = latents.length / latentChannels
  return latents.map((value, i) => {
    if (latentStatistics === undefined) return (value - shiftFactor) * scalingFactor
    const channel = Math.floor(i / plane)
    const mean = latentStatistics.mean[channel] as number
    return ((value - mean) * scalingFactor) / (latentStatistics.std[channel] as number)
  })
}

function denormalize(
  { scalingFactor, shiftFactor, latentStatistics, latentChannels }: DiffusionFiles,
  latents: Float32Array,
): Float32Array {
  const plane = latents.length / latentChannels
  return latents.map((value, i) => {
    if (latentStatistics === undefined) return value / scalingFactor + shiftFactor
    const channel = Math.floor(i / plane)
    const mean = latentStatistics.mean[channel] as number
    return (value * (latentStatistics.std[channel] as number)) / scalingFactor + mean
  })
}
