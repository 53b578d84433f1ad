import { resolve } from 'node:path'

import sharp from 'sharp'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { openService, postJson } from './support/service.ts'

const NAME = 'tiny-vlm'
const REQUESTS = 8
const TURNS = 3 // of a round
const SIDE = 128
const ANSWER_TOKENS = 24

/** Questions about images, eight at once ÷ one after another, through the API. */
export async function benchVision(): Promise<readonly Figure[]> {
  const source = resolve('models', NAME)
  const capabilities = ['chat', 'vision']
  const service = await openService([{ id: NAME, kind: 'completion', source, capabilities }])
  let drawn = 0
  const ask = async (): Promise<void> => {
    drawn += 1
    const url = `data:image/png;base64,${(await newImage(drawn)).toString('base64')}`
    const content = [
      { type: 'image_url', image_url: { url } },
      { type: 'text', text: 'What is in the picture?' },
    ]
    const messages = [{ role: 'user', content }]
    const limits = { max_tokens: ANSWER_TOKENS, min_tokens: ANSWER_TOKENS, temperature: 0 }
    await postJson(service, '/chat/completions', { model: NAME, messages, ...limits })
  }
  const speed = async (answer: () => Promise<void>): Promise<number> => {
    const startedAt = performance.now()
    for (let turn = 0; turn < TURNS; turn += 1) await answer()
    return (REQUESTS * TURNS * 1000) / (performance.now() - startedAt)
  }
  try {
    const found = await alternate(
      () => speed(async () => void (await Promise.all(Array.from({ length: REQUESTS }, ask)))),
      () =>
        speed(async () => {
          for (let request = 0; request < REQUESTS; request += 1) await ask()
        }),
    )
    const name = `${REQUESTS} questions about images to ${NAME} at once ÷ one after another`
    return [{ name, unit: 'answers/s', ...found, target: { atLeast: 2 } }]
  } finally {
    await service.close()
  }
}

/** A square in a colour of its own, so that no image is in the cache of embeddings. */
async function newImage(number: number): Promise<Buffer> {
  const background = { r: number % 256, g: (number >> 8) % 256, b: 128 }
  const create = { width: SIDE, height: SIDE, channels: 3 as const, background }
  return sharp({ create }).png().toBuffer()
}
