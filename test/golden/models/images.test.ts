import { afterAll, describe, expect, it } from 'vitest'

import { type ImageScene, judgeImage, readImage } from '#test/support/image-judge.ts'
import type { ImageRequest } from '#workers/image/image-request.ts'
import { openPipeline } from '#workers/image/pipeline.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { measuredScores, modelFolder, readEvals } from './shipped.ts'

interface Scene extends ImageScene {
  readonly caption: string
}

// Captions that training never saw and scores of diffusers' scheduler over onnxruntime,
// both by `python -m models.training.tiny_sd evaluate`.
const { scenes, steps, guidance } = readEvals<{
  scenes: readonly Scene[]
  steps: number
  guidance: number
}>('tiny-sd')
const measured = measuredScores('tiny-sd')
const IMAGES = 20
// The noise is another than that of the measurement, so that single images differ.
const MARGIN = 0.12
const { signal } = new AbortController()
const runtime = openRuntime()
const pipeline = await openPipeline({
  runtime,
  folder: modelFolder('tiny-sd'),
  session: { intraOpThreads: 1 },
})

afterAll(async () => {
  await pipeline.close()
  await runtime.close()
})

function draw(prompt: string, rest: Partial<ImageRequest> = {}) {
  const request = { prompt, negativePrompt: '', seed: 11, image: 0, steps, guidance, ...rest }
  return pipeline.draw(request, { signal })
}

describe('tiny-sd', { timeout: 180_000 }, () => {
  it('draws held-out captions in the pipeline as well as it was measured', async () => {
    const drawn = []
    for (const [image, scene] of scenes.slice(0, IMAGES).entries()) {
      drawn.push(judgeImage(await draw(scene.caption, { image }), scene))
    }
    for (const name of ['background', 'count', 'colour', 'shape']) {
      const share = drawn.filter((found) => found[name]).length / drawn.length
      expect(share, name).toBeGreaterThanOrEqual((measured[name] as number) - MARGIN)
    }
  })

  it('draws the same bytes for the same seed and others for another', async () => {
    const one = await draw('a red circle on a white background')
    const two = await draw('a red circle on a white background')
    const other = await draw('a red circle on a white background', { seed: 12 })
    expect(two.data).toEqual(one.data)
    expect(other.data).not.toEqual(one.data)
  })

  it('follows the negative prompt', async () => {
    const plain = await draw('a picture')
    const without = await draw('a picture', { negativePrompt: 'a red circle' })
    expect(without.data).not.toEqual(plain.data)
  })

  it('keeps the colours of an image that it varies', async () => {
    const original = await draw('a big blue square on a white background')
    const source = { pixels: original, strength: 0.5 }
    const varied = await draw('', { source, guidance: 1 })
    expect(varied.data).not.toEqual(original.data)
    expect(readImage(varied).background).toBe(readImage(original).background)
    const colours = ({ things }: ReturnType<typeof readImage>) => things.map(({ colour }) => colour)
    expect(colours(readImage(varied))).toEqual(colours(readImage(original)))
  })
})
