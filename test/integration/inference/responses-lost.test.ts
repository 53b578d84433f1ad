import OpenAI from 'openai'
import { expect } from 'vitest'

import { it } from '#test/support/services.ts'
import { ONE_MODEL, startTiers } from '#test/support/tiers.ts'

const REQUEST = {
  model: 'tiny-chat',
  input: 'Count.',
  temperature: 0,
  // Long enough to be killed in the middle of.
  text: {
    format: {
      type: 'json_schema',
      name: 'numbers',
      schema: { type: 'array', items: { type: 'integer' }, minItems: 150 },
    },
  },
  max_output_tokens: 800,
  stream: true,
} as const

it('gives the client of a streamed response the same events when its worker is killed, and again for its key', async ({
  databaseUrl,
  redisUrl,
  keyPrefix,
  folder,
}) => {
  const tiers = await startTiers({ databaseUrl, redisUrl, keyPrefix, folder, env: ONE_MODEL })
  try {
    const { url, apiKey } = tiers
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 })
    const first = await tiers.startWorker()
    const read = async (key: string, onDelta: (count: number) => void = () => {}) => {
      const headers = { 'idempotency-key': key }
      const events: object[] = []
      let text = ''
      let count = 0
      for await (const event of await client.responses.create({ ...REQUEST }, { headers })) {
        events.push(event)
        if (event.type !== 'response.output_text.delta') continue
        text += event.delta
        count += 1
        onDelta(count)
      }
      return { text, events }
    }
    const undisturbed = await read('one')
    expect(undisturbed.text.length).toBeGreaterThan(300)
    let killing: Promise<unknown> = Promise.resolve()
    const disturbed = await read('two', (count) => {
      if (count === 5) killing = first.kill().then(() => tiers.startWorker())
    })
    await killing
    expect(disturbed.text).toBe(undisturbed.text)
    expect(disturbed.events.map(typeOf)).toEqual(undisturbed.events.map(typeOf))
    expect((await read('two')).events).toEqual(disturbed.events)
  } finally {
    await tiers.stop()
  }
}, 240_000)

/** Its name and its number: all but the ids and times of its response. */
function typeOf(event: object): unknown {
  const { type, sequence_number: number } = event as { type: string; sequence_number: number }
  return [type, number]
}
