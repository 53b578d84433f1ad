import type { ImageInput, PartialImage } from '#shared/contracts/image.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { encodeImage, resizeImage } from '#workers/image/image-file.ts'
import type { DrawnStep } from '#workers/image/image-request.ts'
import type { DiffusionPipeline } from '#workers/image/pipeline.ts'
import type { ImageSize, Pixels } from '#workers/image/pixels.ts'

/** Stores the predicted image after some of the runs, and reports its key. */
export function storePartials(
  input: ImageInput,
  job: {
    readonly pipeline: DiffusionPipeline
    readonly storage: ObjectStore
    readonly runs: number
    /** The size of the latents. */
    readonly size: ImageSize
    finish(drawn: Pixels): Pixels
    report(partial: PartialImage): void
  },
): (image: number, drawn: DrawnStep, signal: AbortSignal) => Promise<void> {
  const { pipeline, storage } = job
  const { format = 'png', outputPrefix } = input
  const steps = partialSteps(input.partialImages ?? 0, job.runs)
  return async (image, drawn, signal) => {
    const index = steps.indexOf(drawn.step)
    if (index < 0) return
    const pixels = await pipeline.decode(drawn.clean(), job.size, signal)
    const file = await encodeImage(job.finish(await resizeImage(pixels, input)), input)
    const key = `${outputPrefix}/${image}-partial-${index}.${format}`
    await storage.put(key, file, { contentType: `image/${format}`, signal })
    job.report({ image, index, key })
  }
}

/**
 * The runs of the U-Net after which a partial image is sent, evenly spaced and excluding the last;
 * fewer than `count` if there are not as many runs.
 */
function partialSteps(count: number, runs: number): readonly number[] {
  const steps = Array.from({ length: count }, (_, i) => Math.round(((i + 1) * runs) / (count + 1)))
  return [...new Set(steps)].filter((step) => step >= 1 && step < runs)
}
