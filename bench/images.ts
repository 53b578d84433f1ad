import { resolve } from 'node:path'

import { encodeImage, resizeImage } from '#workers/image/image-file.ts'
import { openPipeline } from '#workers/image/pipeline.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openService, postJson } from './support/service.ts'

const FOLDER = 'models/tiny-sd'
const SIZE = 256
const IMAGES = 4
const PROMPT = 'a red circle on a white background'

/** Seconds per image through the API against the same pipeline in a bare loop, PNG included. */
export async function benchImages(): Promise<readonly Figure[]> {
  const models = [{ id: 'images', kind: 'image', source: resolve(FOLDER) }]
  const service = await openService(models)
  const runtime = openRuntime()
  try {
    const pipeline = await openPipeline({ runtime, folder: FOLDER })
    const { steps, guidance } = pipeline.defaults
    const { signal } = new AbortController()
    const seconds = async (draw: () => Promise<void>): Promise<number> => {
      const startedAt = performance.now()
      await draw()
      return (performance.now() - startedAt) / 1000 / IMAGES
    }
    const request = { prompt: PROMPT, n: IMAGES, size: `${SIZE}x${SIZE}`, seed: 1, steps }
    const ours = async (): Promise<void> => {
      await postJson(service, '/images/generations', { model: 'images', ...request })
    }
    const theirs = async (): Promise<void> => {
      for (let image = 0; image < IMAGES; image += 1) {
        const asked = { prompt: PROMPT, negativePrompt: '', seed: 1, image, steps, guidance }
        const pixels = await pipeline.draw(asked, { signal })
        await encodeImage(await resizeImage(pixels, { width: SIZE, height: SIZE }))
      }
    }
    const found = await alternate(
      () => seconds(ours),
      () => seconds(theirs),
    )
    const name = 'an image of tiny-sd through the API ÷ a bare pipeline loop'
    return [{ name, unit: 's', ...found, target: { atMost: 1.03 } }]
  } finally {
    await service.close()
    await runtime.close()
  }
}
