import { basename, dirname, join } from 'node:path'

import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest'

import type { ImageRequest } from '#workers/image/image-request.ts'
import { type DiffusionPipeline, openPipeline } from '#workers/image/pipeline.ts'
import { openUnet } from '#workers/image/unet.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { ModelSession } from '#workers/runtime/session.ts'

const FIXTURES = join(import.meta.dirname, '../../../fixtures/models')
// One thread: all rows go through one session.
const session = { intraOpThreads: 1 }
const runtime = openRuntime()
const open = (name: string) =>
  openPipeline({
    runtime,
    folder: join(FIXTURES, name),
    session,
    onBatch: (rows) => seen.push(rows),
  })
const xl = await open('stable-diffusion-xl')
// Its graph takes one timestep for all rows.
const older = await open('stable-diffusion')
const { signal } = new AbortController()
let seen: number[] = []

beforeEach(() => {
  seen = []
})
afterAll(async () => {
  await Promise.all([xl.close(), older.close()])
  await runtime.close()
})

const REQUEST = { prompt: 'a red circle', negativePrompt: '', image: 0, steps: 4, guidance: 3 }

function draw(pipeline: DiffusionPipeline, rest: Partial<ImageRequest> = {}, tools = { signal }) {
  return pipeline.draw({ ...REQUEST, seed: 1, ...rest }, tools)
}

type AroundRun = (network: string, run: () => Promise<unknown>) => Promise<unknown>

/** Puts something around every run of a network, which is named after its folder. */
function aroundRuns(around: AroundRun) {
  const plain = ModelSession.prototype.run
  function run(this: ModelSession, ...args: Parameters<ModelSession['run']>) {
    return around(basename(dirname(this.file)), () => plain.apply(this, args))
  }
  return vi.spyOn(ModelSession.prototype, 'run').mockImplementation(run as never)
}

describe('runs of the U-Net', () => {
  it.each([
    ['at any timesteps, with a place for each', { steps: 6 }, 4],
    ['of a text alone and of one with guidance', { guidance: 1 }, 3],
    ['of other steps and of another text', { steps: 3, prompt: 'a blue square' }, 4],
  ])('have the rows of two images %s', async (_name, second, rows) => {
    const images = [{}, { seed: 2, ...second }]
    let numEncoded = 0
    const counted: AroundRun = async (network, run) => {
      const outputs = await run()
      if (network.startsWith('text_encoder')) numEncoded += 1
      return outputs
    }
    const counting = aroundRuns(counted)
    const [one, two] = [await draw(xl, images[0]), await draw(xl, images[1])]
    const [alone, numTexts] = [seen.length, numEncoded]
    counting.mockRestore()
    seen = []
    numEncoded = 0
    const areEncoded = Promise.withResolvers<void>()
    const meeting = aroundRuns(async (network, run) => {
      if (network === 'unet') await areEncoded.promise
      const outputs = await counted(network, run)
      if (numEncoded === numTexts) areEncoded.resolve()
      return outputs
    })
    const both = await Promise.all(images.map((image) => draw(xl, image)))
    meeting.mockRestore()
    expect(Math.max(...seen)).toBe(rows)
    expect(seen.length).toBeLessThan(alone)
    expect(both).toEqual([one, two])
  })

  it('have rows of only one timestep if the graph accepts one', async () => {
    const unet = await openUnet(runtime, older.modelFiles[1] as string, session, {
      nativeLatents: 64,
      onBatch: (rows) => seen.push(rows),
    })
    const sample = { data: new Float32Array(256).fill(0.5), dims: [1, 4, 8, 8] }
    const states = { data: new Float32Array(16 * 32).fill(0.1), dims: [1, 16, 32] }
    const row = { sample, text: { states }, timestep: 500 }
    const rows = [row, { ...row, timestep: 20 }, row]
    const [one, two, three] = await unet.predict(rows, signal)
    expect(seen).toEqual([2, 1])
    expect(three).toEqual(one)
    expect(two).not.toEqual(one)
    await unet.close()
  })

  it('are not shared by images of different sizes', async () => {
    const second = { size: { width: 16, height: 8 } }
    const [one, two] = [await draw(xl, {}), await draw(xl, second)]
    const both = await Promise.all([draw(xl, {}), draw(xl, second)])
    expect(seen.every((rows) => rows === 2)).toBe(true)
    expect(both).toEqual([one, two])
  })

  it('go on with an image when another one of theirs is cancelled', async () => {
    const alone = await draw(xl, {})
    const abort = new AbortController()
    const leaving = xl.draw(
      { ...REQUEST, seed: 2, steps: 50 },
      { signal: abort.signal, onStep: ({ step }) => void (step === 2 && abort.abort()) },
    )
    const [kept, left] = await Promise.allSettled([draw(xl, {}), leaving])
    expect(kept).toEqual({ status: 'fulfilled', value: alone })
    expect(left).toMatchObject({ status: 'rejected', reason: { name: 'CancelledError' } })
  })

  it('continue for one image while another one is decoded', async () => {
    const isBeside = Promise.withResolvers<void>()
    let isDecoding = false
    const holding = aroundRuns(async (network, run) => {
      if (network === 'unet' && isDecoding) isBeside.resolve()
      if (network === 'vae_decoder' && !isDecoding) {
        isDecoding = true
        await isBeside.promise
      }
      return run()
    })
    const both = await Promise.all([draw(xl, { steps: 1 }), draw(xl, { seed: 2, steps: 6 })])
    holding.mockRestore()
    expect(both).toEqual([await draw(xl, { steps: 1 }), await draw(xl, { seed: 2, steps: 6 })])
  })
})
