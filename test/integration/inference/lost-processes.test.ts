import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { startOwnTiers } from '#test/support/own-tiers.ts'
import { ONE_MODEL, type Tiers } from '#test/support/tiers.ts'

// Ids 0, 1 and 2 end the text of the shipped model; without them it goes on to the limit.
const ENDLESS = { '0': -100, '1': -100, '2': -100 }
const REQUEST = {
  model: 'tiny-chat',
  prompt: 'Once upon a time',
  max_tokens: 900,
  // Sampling at temperature 1 would meet, once in some 10⁵ tokens, two candidates that are nearer
  // to each other than the rounding of a batched and an unbatched run.
  temperature: 0,
  frequency_penalty: 0.7,
  logit_bias: ENDLESS,
  stream: true,
} as const

/** The text of a stream; `onChunk` receives the number of chunks so far. */
async function read(client: OpenAI, onChunk: (count: number) => void = () => {}): Promise<string> {
  let text = ''
  let count = 0
  for await (const chunk of await client.completions.create(REQUEST)) {
    text += chunk.choices[0]?.text ?? ''
    count += 1
    onChunk(count)
  }
  return text
}

function clientOf(url: string): OpenAI {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: tiers.apiKey, maxRetries: 0 })
}

let tiers: Tiers
let worker: Awaited<ReturnType<Tiers['startWorker']>>
let undisturbed: string
beforeAll(async () => {
  tiers = await startOwnTiers(ONE_MODEL)
  worker = await tiers.startWorker()
  undisturbed = await read(clientOf(tiers.url))
})
afterAll(() => tiers.stop())

describe('a client of real processes receives the same bytes', () => {
  it('when the worker is killed in the middle of a stream', async () => {
    expect(undisturbed.length).toBeGreaterThan(500)
    let killing: Promise<unknown> = Promise.resolve()
    const disturbed = await read(clientOf(tiers.url), (count) => {
      if (count !== 5) return
      killing = worker.kill().then(async () => {
        worker = await tiers.startWorker()
      })
    })
    await killing
    expect(disturbed).toBe(undisturbed)
  })

  it('when the worker is stopped in the middle of a stream', async () => {
    let stopping: Promise<unknown> = Promise.resolve()
    const disturbed = await read(clientOf(tiers.url), (count) => {
      if (count === 5) stopping = Promise.all([worker.process.stop(), tiers.startWorker()])
    })
    await stopping
    expect(disturbed).toBe(undisturbed)
  })

  it('when the API is stopped, which refuses new requests', async () => {
    const second = await tiers.startApi()
    let stopping: Promise<unknown> = Promise.resolve()
    const disturbed = await read(clientOf(second.url), (count) => {
      if (count === 5) stopping = second.process.stop(20_000)
    })
    await stopping
    expect(disturbed).toBe(undisturbed)
    await expect(fetch(`${second.url}/healthz`)).rejects.toThrow()
  })
})
