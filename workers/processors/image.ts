import type { ImageInput, PartialImage } from '#shared/contracts/image.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { CancelledError, failure } from '#shared/errors.ts'
import { type ObjectStore, readObject } from '#shared/storage/object-store.ts'
import { encodeImage, openImage, resizeImage, type SourceImage } from '#workers/image/image-file.ts'
import type { DrawnStep, ImageRequest } from '#workers/image/image-request.ts'
import type { DiffusionPipeline } from '#workers/image/pipeline.ts'
import {
  blankOut,
  type ImageSize,
  type Pixels,
  pasteBack,
  type RedrawMask,
} from '#workers/image/pixels.ts'

import { storePartials } from './partial-images.ts'
import { allOrNone, type JobTools } from './processor-row.ts'

/** A loaded model of image queues. */
export interface ImageModel {
  readonly pipeline: DiffusionPipeline
  readonly storage: ObjectStore
}

// The API refuses larger uploads; this only bounds the memory of a worker.
const SOURCE_BYTES_MAX = 64 * 1024 ** 2
// A variation starts at half of the noise: it keeps the colours but not the details.
const VARIATION_STRENGTH = 0.5
const EDIT_STRENGTH = 1
// Refiners were trained only on the last steps.
const REFINER_STRENGTH = 0.3

/** Draws the images of one job, as many at a time as is useful, and stores each when it is done. */
export async function processImage(
  job: JobEnvelope<'image'>,
  { model, reply, signal, clock }: JobTools<ImageModel, 'image'>,
): Promise<void> {
  const { input } = job
  const { pipeline, storage } = model
  const begunMs = clock.now()
  const steps = input.steps ?? pipeline.defaults.steps
  refuseSteps(steps, pipeline.trainSteps)
  if (pipeline.isRefiner && input.task === 'generate') throw refinesOnly()
  const size = pipeline.sizeFor(input)
  const source = await readSource(model, input, size)
  if (signal.aborted) throw new CancelledError()
  reply.started(0)
  const preparedMs = clock.now()
  const stepsEach = pipeline.stepsOf(steps, source?.strength ?? 1)
  const { format = 'png', outputPrefix } = input
  const imageKeys = Array.from({ length: input.n }, (_, at) => `${outputPrefix}/${at}.${format}`)
  const request = { ...requestOf(input, pipeline, steps), size, ...(source && { source }) }
  const finish = source?.paste ?? ((drawn: Pixels) => drawn)
  let stepsDone = 0
  const report = (partialImage?: PartialImage): void =>
    reply.progress(stepsDone, input.n * stepsEach, partialImage && { partialImage })
  const storePartial = storePartials(input, {
    pipeline,
    storage,
    runs: stepsEach,
    size,
    finish,
    report,
  })
  const waiting = imageKeys.entries()
  const drawWaiting = async (either: AbortSignal): Promise<void> => {
    for (const [image, key] of waiting) {
      const onStep = (drawn: DrawnStep): Promise<void> => {
        stepsDone += 1
        report()
        return storePartial(image, drawn, either)
      }
      const drawn = await pipeline.draw({ ...request, image }, { signal: either, onStep })
      const file = await encodeImage(finish(await resizeImage(drawn, input)), input)
      await storage.put(key, file, { contentType: `image/${format}`, signal: either })
    }
  }
  const poolSize = Math.min(pipeline.poolSize, input.n)
  await allOrNone(signal, new Array<typeof drawWaiting>(poolSize).fill(drawWaiting))
  reply.result(
    { imageKeys },
    { promptTokens: 0, completionTokens: 0, cachedTokens: 0 },
    {
      queueMs: begunMs - job.enqueuedAtMs,
      prepareMs: preparedMs - begunMs,
      runMs: clock.now() - preparedMs,
    },
  )
}

/** The source of an image, and how the drawn one is merged into it. */
interface Source {
  readonly pixels: Pixels
  readonly mask?: RedrawMask
  readonly strength: number
  readonly paste?: (drawn: Pixels) => Pixels
}

function requestOf(
  input: ImageInput,
  { defaults }: DiffusionPipeline,
  steps: number,
): Omit<ImageRequest, 'image' | 'size' | 'source'> {
  return {
    prompt: input.task === 'variation' ? '' : input.prompt,
    negativePrompt: input.negativePrompt ?? '',
    seed: input.seed,
    steps,
    guidance: input.guidanceScale ?? defaults.guidance,
  }
}

async function readSource(
  { pipeline, storage }: ImageModel,
  input: ImageInput,
  size: ImageSize,
): Promise<Source | undefined> {
  if (input.task === 'generate') return undefined
  const image = await openImage(
    await readObject(storage, input.imageKey, SOURCE_BYTES_MAX),
    'image',
  )
  const start = blankOut(await image.coloursAt(size), await image.transparencyAt(size))
  if (input.task === 'variation') {
    return { pixels: start, strength: input.strength ?? defaultStrength(pipeline, input) }
  }
  const maskAt = await openMask(storage, input, image)
  const original = await image.coloursAt(input)
  const marked = await maskAt(input)
  const isWhole = input.maskKey === undefined && !marked.data.includes(1)
  const pasteMask = isWhole ? wholeMask(input) : marked
  return {
    pixels: start,
    mask: isWhole ? wholeMask(size) : await maskAt(size),
    strength: input.strength ?? defaultStrength(pipeline, input),
    paste: (drawn) => pasteBack(drawn, original, pasteMask),
  }
}

function defaultStrength({ isRefiner }: DiffusionPipeline, { task }: ImageInput): number {
  if (isRefiner) return REFINER_STRENGTH
  return task === 'edit' ? EDIT_STRENGTH : VARIATION_STRENGTH
}

/** The area to redraw, at any size: the transparency of the mask, else of the image itself. */
async function openMask(
  storage: ObjectStore,
  { maskKey }: ImageInput & { readonly task: 'edit' },
  image: SourceImage,
): Promise<(size: ImageSize) => Promise<RedrawMask>> {
  if (maskKey === undefined) return image.transparencyAt
  const mask = await openImage(await readObject(storage, maskKey, SOURCE_BYTES_MAX), 'mask')
  if (mask.width === image.width && mask.height === image.height) return mask.transparencyAt
  throw failure.invalidRequest(
    `The mask has ${mask.width}×${mask.height} pixels and the image ${image.width}×${image.height}; they must be of the same size.`,
    { param: 'mask', code: 'invalid_mask' },
  )
}

function wholeMask({ width, height }: ImageSize): RedrawMask {
  return { width, height, data: new Uint8Array(width * height).fill(1) }
}

function refinesOnly(): Error {
  return failure.invalidRequest(
    'The model refines images and cannot draw one from a prompt. Use /v1/images/edits or /v1/images/variations.',
    { param: 'model', code: 'model_not_supported' },
  )
}

function refuseSteps(steps: number, trainSteps: number): void {
  if (Number.isInteger(steps) && steps >= 1 && steps <= trainSteps) return
  throw failure.invalidRequest(`The number of steps must be between 1 and ${trainSteps}.`, {
    param: 'steps',
  })
}
