import type { Condition } from './conditions.ts'
import type { DiffusionFiles } from './diffusion-files.ts'
import { estimateClean } from './estimate-clean.ts'
import type { ImageRequest, ImageTools } from './image-request.ts'
import type { Networks } from './networks.ts'
import { normalNoise } from './noise.ts'
import { createNoiseScheduler } from './noise-schedulers/table.ts'
import type { NoiseScheduler } from './noise-schedulers/types.ts'
import { blankOut, type ImageSize, type Pixels, shrinkMask, toVolume } from './pixels.ts'
import type { UnetRow } from './unet.ts'

interface Parts {
  readonly files: DiffusionFiles
  readonly networks: Pick<Networks, 'predict' | 'encodeImage'>
}

/** An image whose texts are encoded. */
type LatentRequest = Omit<ImageRequest, 'prompt' | 'negativePrompt' | 'guidance' | 'size'> & {
  readonly condition: Condition
  readonly size: ImageSize
}

/**
 * Noise → U-Net → less noise, `steps` times. With a source the loop starts from its noised latents;
 * with a mask, latents outside of it are replaced by the equally noised source after every step
 * (Lugmayr et al. 2022), unless the U-Net takes mask and image itself.
 */
export async function drawLatents(
  { files, networks }: Parts,
  request: LatentRequest,
  { signal, onStep }: ImageTools,
): Promise<Float32Array> {
  const { steps, source, seed, image, condition } = request
  const scheduler = createNoiseScheduler(files.scheduler, steps)
  const size = latentSizeOf(files, request.size)
  const length = files.latentChannels * size.width * size.height
  const noise = request.startNoise ?? normalNoise({ seed, image, draw: 0 }, length)
  const clean = source && (await networks.encodeImage(toVolume(source.pixels), signal))
  const first = source === undefined ? 0 : firstCall(scheduler, steps, source.strength)
  let latents = startLatents(scheduler, noise, clean, first)
  const mask = source?.mask && shrinkMask(source.mask, size)
  const extra = await inpaintingChannels({ files, networks }, request, signal)
  const end = scheduler.timesteps.length
  for (let index = first; index < end; index++) {
    const scaled = scheduler.scaleInput(latents, index)
    const data = extra === undefined ? scaled : join(scaled, extra)
    const step = {
      sample: { data, dims: [1, files.unetChannels, size.height, size.width] },
      timestep: scheduler.timesteps[index] as number,
    }
    const prediction = await predict(networks, condition, step, signal)
    const run = { index, latents, prediction }
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
    await onStep?.({
      step: index - first + 1,
      latents,
      clean: () => estimateClean(scheduler, files.scheduler.prediction_type, run),
    })
  }
  return latents
}

/** The runs of the U-Net that `strength` leaves of all steps. */
export function stepsLeft(scheduler: NoiseScheduler, steps: number, strength: number): number {
  return scheduler.timesteps.length - firstCall(scheduler, steps, strength)
}

/** The run of the U-Net at which the share of the steps given by `strength` begins. */
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
  // At full strength none of the source remains in the noise.
  if (clean === undefined || first === 0) {
    return noise.map((value) => value * scheduler.initNoiseSigma)
  }
  return scheduler.addNoise(clean, noise, first)
}

async function predict(
  networks: Pick<Networks, 'predict'>,
  { rows, guidance }: Condition,
  step: Pick<UnetRow, 'sample' | 'timestep'>,
  signal: AbortSignal,
): Promise<Float32Array> {
  const predictions = await networks.predict(
    rows.map((row) => ({ ...row, ...step })),
    signal,
  )
  const [unwanted, wanted] = predictions as [Float32Array, Float32Array | undefined]
  if (wanted === undefined) return unwanted
  // Ho and Salimans 2022, eq. 6: away from the negative prompt, towards the prompt.
  return wanted.map(
    (value, i) => (unwanted[i] as number) + guidance * (value - (unwanted[i] as number)),
  )
}

/**
 * Mask and masked image for U-Nets with 9 channels; without a source, the whole image is
 * regenerated.
 */
async function inpaintingChannels(
  { files, networks }: Parts,
  { source, size }: Pick<LatentRequest, 'source' | 'size'>,
  signal: AbortSignal,
): Promise<Float32Array | undefined> {
  if (files.unetChannels === files.latentChannels) return undefined
  const { width, height } = size
  const grey: Pixels = { ...size, data: new Uint8Array(3 * width * height).fill(128) }
  const small = latentSizeOf(files, size)
  const { pixels, mask } =
    source?.mask === undefined
      ? { pixels: grey, mask: new Float32Array(small.width * small.height).fill(1) }
      : { pixels: blankOut(source.pixels, source.mask), mask: shrinkMask(source.mask, small) }
  const masked = await networks.encodeImage(toVolume(pixels), signal)
  return join(mask, masked)
}

function join(first: Float32Array, second: Float32Array): Float32Array {
  const joined = new Float32Array(first.length + second.length)
  joined.set(first)
  joined.set(second, first.length)
  return joined
}

function latentSizeOf({ vaeFactor }: DiffusionFiles, { width, height }: ImageSize): ImageSize {
  return { width: width / vaeFactor, height: height / vaeFactor }
}
