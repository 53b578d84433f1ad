import { afterAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'
import { openEncoder } from '#workers/embedding/encoder.ts'
import { processEmbedding } from '#workers/processors/embedding.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { modelFolder } from './shipped.ts'

const WORDS = 'a woman reads an old book about ships and rivers while the dog runs in the park'
const runtime = openRuntime()
const encoder = await openEncoder({
  runtime,
  folder: modelFolder('tiny-embed'),
  session: { intraOpThreads: 1 },
})

afterAll(async () => {
  await encoder.close()
  await runtime.close()
})

/** The vectors of a job and the tokens that it counts, as its processor replies them. */
async function run(
  fields: Pick<EmbedInput, 'items'> & Partial<EmbedInput>,
  options = {},
): Promise<{ vectors: string[]; started: number; promptTokens: number }> {
  const received = { vectors: [] as string[], started: 0, promptTokens: 0 }
  const reply = {
    started: (tokens: number) => {
      received.started = tokens
    },
    result: (result: { vectors: string[] }, usage: { promptTokens: number }) => {
      received.vectors = result.vectors
      received.promptTokens = usage.promptTokens
    },
  }
  const input = { task: 'embed', role: 'none', dimensions: null, ...fields }
  const job = { kind: 'embedding', modelId: 'tiny-embed', enqueuedAtMs: 0, input }
  const { signal } = new AbortController()
  const model = { task: 'embed', reads: 'texts', encoder, options }
  await processEmbedding(job as never, { reply, signal, clock: systemClock, model } as never)
  return received
}

describe('tiny-embed with a number of tokens to keep', () => {
  const long = `${WORDS} `.repeat(100)

  it.each([1, 3, 9, 16])('embeds as if the text ended after %i words', async (count) => {
    const kept = WORDS.split(' ').slice(0, count).join(' ')
    const tokensMax = (await encoder.encodeText(kept)).length
    const cut = await run({ items: [long], tokensMax })
    expect(cut).toEqual(await run({ items: [kept] }))
    expect([cut.started, cut.promptTokens]).toEqual([tokensMax, tokensMax])
  })

  it('fills its context and no more when asked to cut to it', async () => {
    await expect(run({ items: [long] })).rejects.toMatchObject({ code: 'context_length_exceeded' })
    const whole = await run({ items: [long], tokensMax: 'context' })
    expect(whole.promptTokens).toBe(encoder.contextLength)
    expect(await run({ items: [long], tokensMax: encoder.contextLength })).toEqual(whole)
    const short = await run({ items: [WORDS], tokensMax: 'context' })
    expect(short).toEqual(await run({ items: [WORDS] }))
  })

  it('counts its prefix among the tokens that are kept', async () => {
    const options = { queryPrefix: 'a woman reads ' }
    const rest = WORDS.slice(options.queryPrefix.length)
    const cut = await run({ items: [rest], role: 'query', tokensMax: 7 }, options)
    expect(cut).toEqual(await run({ items: [WORDS], tokensMax: 7 }))
  })

  it('cuts token ids on the right', async () => {
    const ids = Array.from({ length: 1000 }, (_, at) => 5 + (at % 200))
    const cut = await run({ items: [ids], tokensMax: 12 })
    expect(cut).toEqual(await run({ items: [ids.slice(0, 12)] }))
    expect(cut.promptTokens).toBe(12)
    const filled = await run({ items: [ids], tokensMax: 'context' })
    expect(filled.promptTokens).toBe(encoder.contextLength)
  })

  it('refuses more than its context, naming the field and the number', async () => {
    const tokensMax = encoder.contextLength + 1
    for (const items of [['Hi'], [[5, 6]]]) {
      await expect(run({ items, tokensMax })).rejects.toMatchObject({
        param: 'truncate_prompt_tokens',
        code: 'integer_above_max_value',
        message: expect.stringContaining(`<= ${encoder.contextLength}`),
      })
    }
  })
})
