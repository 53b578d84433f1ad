import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'

import sharp from 'sharp'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'
import { type BenchService, openService, postJson } from './support/service.ts'
import { timeStream } from './support/token-stream.ts'

const SHIPPED = 'models/tiny-vlm'
/** Made by bench/make-decoder.py --images. */
const REALISTIC = '.data/bench/vision-shape'
const SIDE = 224 // of the images, and of what the large encoder reads
const PATCHES = 196
const EMBEDDING_SIZE = 576
const REQUESTS = 8
const TURNS = 3 // of a round
const ANSWER_TOKENS = 24

/** Questions about images: eight at once, and the time to the first token. */
export async function benchVision(): Promise<readonly Figure[]> {
  const figures = [await withService(SHIPPED, atOnce)]
  if (existsSync(REALISTIC)) figures.push(await withService(REALISTIC, firstToken))
  return figures
}

async function withService(
  folder: string,
  measure: (service: BenchService) => Promise<Figure>,
): Promise<Figure> {
  const model = { id: 'vision', kind: 'completion', capabilities: ['chat', 'vision'] }
  const service = await openService([{ ...model, source: resolve(folder) }])
  try {
    return await measure(service)
  } finally {
    await service.close()
  }
}

async function atOnce(service: BenchService): Promise<Figure> {
  const limits = { max_tokens: ANSWER_TOKENS, min_tokens: ANSWER_TOKENS }
  const ask = async (): Promise<void> => {
    await postJson(service, '/chat/completions', { ...(await newQuestion()), ...limits })
  }
  const speed = async (askAll: () => Promise<unknown>): Promise<number> => {
    const startedAt = performance.now()
    for (let turn = 0; turn < TURNS; turn += 1) await askAll()
    return (REQUESTS * TURNS * 1000) / (performance.now() - startedAt)
  }
  const found = await alternate(
    () => speed(() => Promise.all(Array.from({ length: REQUESTS }, ask))),
    () =>
      speed(async () => {
        for (let request = 0; request < REQUESTS; request += 1) await ask()
      }),
  )
  const name = `${REQUESTS} questions about images to tiny-vlm at once ÷ one after another`
  return { name, unit: 'answers/s', ...found, target: { atLeast: 2 } }
}

/** Through the API, with the image decoded and resized ÷ one run of each bare session. */
async function firstToken(service: BenchService): Promise<Figure> {
  const runtime = openRuntime()
  const encoder = await runtime.load(join(REALISTIC, 'onnx/vision_encoder.onnx'))
  const engine = await openTextEngine({ runtime, folder: REALISTIC, slots: 1 })
  try {
    const options = { path: '/chat/completions' }
    const first = await postJson(service, options.path, { ...(await newQuestion()), max_tokens: 1 })
    const { usage } = first as { usage: { prompt_tokens: number } }
    assert(usage.prompt_tokens > PATCHES, 'the image is not in the prompt')
    // The first event of a chat says only that its answer has begun.
    const ours = async (): Promise<number> => {
      const body = { ...(await newQuestion()), max_tokens: 1 }
      return (await timeStream(service, body, options)).endMs
    }
    const pixels = new Float32Array(3 * SIDE * SIDE).fill(0.5)
    const theirs = async (): Promise<number> => {
      const startedAt = performance.now()
      const pixelValues = runtime.tensor('float32', pixels, [1, 3, SIDE, SIDE])
      const { image_features: features } = await encoder.run(
        { pixel_values: pixelValues },
        { image_features: null },
      )
      const embeddings = Float32Array.from(features.data as Float32Array)
      assert.equal(embeddings.length, PATCHES * EMBEDDING_SIZE)
      for (const tensor of [pixelValues, features]) tensor.dispose()
      await runGreedy(engine, {
        promptTokenIds: Array.from({ length: usage.prompt_tokens }, (_, at) =>
          at < PATCHES ? -1 - at : 10,
        ),
        embedded: [{ start: 0, embeddings }],
        maxNewTokens: 1,
        cacheScope: randomUUID(),
      })
      return performance.now() - startedAt
    }
    const found = await alternate(ours, theirs)
    const name = "first token of a question about an image, SigLIP base and SmolLM2-135M's shape"
    return { name: `${name} ÷ the bare runs`, unit: 'ms', ...found, target: { atMost: 1.15 } }
  } finally {
    await engine.close()
    await encoder.close()
    await runtime.close()
  }
}

let numDrawn = 0

/** A question about a square in a colour of its own, so that no image is in a cache. */
async function newQuestion(): Promise<object> {
  numDrawn += 1
  const background = { r: numDrawn % 256, g: (numDrawn >> 8) % 256, b: 128 }
  const create = { width: SIDE, height: SIDE, channels: 3 as const, background }
  const url = `data:image/png;base64,${(await sharp({ create }).png().toBuffer()).toString('base64')}`
  const content = [
    { type: 'image_url', image_url: { url } },
    { type: 'text', text: 'What is in the picture?' },
  ]
  return { model: 'vision', temperature: 0, messages: [{ role: 'user', content }] }
}
