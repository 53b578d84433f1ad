import OpenAI from 'openai'
import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'
import { ONE_MODEL, startTiers, type Tiers } from '#test/support/tiers.ts'

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

function clientOf(tiers: Tiers): OpenAI {
  return new OpenAI({ baseURL: `${tiers.url}/v1`, apiKey: tiers.apiKey, maxRetries: 0 })
}

describe('real processes', () => {
  it('give the client the same bytes when the worker is killed in the middle of a stream', async ({
    databaseUrl,
    redisUrl,
    keyPrefix,
    folder,
  }) => {
    const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env: ONE_MODEL })
    try {
      const client = clientOf(tiers)
      const first = await tiers.startWorker()
      const undisturbed = await read(client)
      expect(undisturbed.length).toBeGreaterThan(500)
      let killing: Promise<unknown> = Promise.resolve()
      const disturbed = await read(client, (count) => {
        if (count === 5) killing = first.kill().then(() => tiers.startWorker())
      })
      await killing
      expect(disturbed).toBe(undisturbed)
    } finally {
      await tiers.stop()
    }
  })

  it('give the client the same bytes when the worker is stopped in the middle of a stream', async ({
    databaseUrl,
    redisUrl,
    keyPrefix,
    folder,
  }) => {
    const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env: ONE_MODEL })
    try {
      const client = clientOf(tiers)
      const first = await tiers.startWorker()
      await tiers.startWorker()
      const undisturbed = await read(client)
      let stopping: Promise<unknown> = Promise.resolve()
      const disturbed = await read(client, (count) => {
        if (count === 5) stopping = first.process.stop()
      })
      await stopping
      expect(disturbed).toBe(undisturbed)
    } finally {
      await tiers.stop()
    }
  })

  it('finish an open stream when the API is stopped, and refuse new requests', async ({
    databaseUrl,
    redisUrl,
    keyPrefix,
    folder,
  }) => {
    const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env: ONE_MODEL })
    try {
      await tiers.startWorker()
      const undisturbed = await read(clientOf(tiers))
      const second = await tiers.startApi()
      const client = new OpenAI({
        baseURL: `${second.url}/v1`,
        apiKey: tiers.apiKey,
        maxRetries: 0,
      })
      let stopping: Promise<unknown> = Promise.resolve()
      const disturbed = await read(client, (count) => {
        if (count === 5) stopping = second.process.stop(20_000)
      })
      await stopping
      expect(disturbed).toBe(undisturbed)
      await expect(fetch(`${second.url}/healthz`)).rejects.toThrow()
    } finally {
      await tiers.stop()
    }
  })
})
