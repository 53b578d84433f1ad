import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'

import { API_KEY, openSurface, speak } from './surface.ts'

interface Chunk {
  readonly choices: readonly { readonly finish_reason: string | null }[]
  readonly usage?: { readonly completion_tokens: number } | null
}

const ENDPOINTS = [
  ['/v1/completions', { prompt: 'Hi' }, 0],
  // Its first chunk opens the answer, before any token.
  ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }] }, 1],
] as const

describe.each(ENDPOINTS)('the chunks of %s', (url, fields, opening) => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface(({ input }) => speak(input as GenerateInput, ['a', 'b', 'c']))
  })
  afterAll(() => surface.app.close())

  async function usagesOf(options: object): Promise<Chunk['usage'][]> {
    const response = await surface.app.inject({
      method: 'POST',
      url,
      headers: { authorization: `Bearer ${API_KEY}` },
      payload: { model: 'tiny-chat', stream: true, ...fields, stream_options: options },
    })
    const frames = response.body.split('\n\n').filter((frame) => frame.startsWith('data: {'))
    return frames.map((frame) => (JSON.parse(frame.slice('data: '.length)) as Chunk).usage)
  }

  it('reports the tokens so far on request', async () => {
    const usages = await usagesOf({ include_usage: true, continuous_usage_stats: true })
    const counts = usages.map((usage) => usage?.completion_tokens)
    expect(usages[0]).toEqual({
      prompt_tokens: 5,
      completion_tokens: 1 - opening,
      total_tokens: 6 - opening,
    })
    expect(counts).toEqual(counts.toSorted())
    expect(counts.at(-1)).toBe(3)
  })

  it.each([{ include_usage: true }, { include_usage: true, continuous_usage_stats: false }])(
    'tell them at the end alone with %j',
    async (options) => {
      const usages = await usagesOf(options)
      expect(usages.slice(0, -1).every((usage) => usage === null)).toBe(true)
      expect(usages.at(-1)).toMatchObject({ completion_tokens: 3 })
    },
  )

  it.each([{}, { continuous_usage_stats: true }, { include_usage: false }])(
    'tell of none with %j',
    async (options) => {
      expect((await usagesOf(options)).every((usage) => usage === undefined)).toBe(true)
    },
  )
})
