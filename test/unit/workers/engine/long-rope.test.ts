import { afterEach, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import type { TextEngine } from '#workers/engine/types.ts'

import { generate } from './generate.ts'
import { closeEngines, makePrompt, ON_DEVICE, openEngine } from './open-engine.ts'

afterEach(closeEngines)

// llama-long-rope has other rotary factors from 49 positions on, chosen by the width of the mask.
const SHORT_MAX = 48
const NEW_TOKENS = 14
const LENGTHS = [6, 30, 40, 44, 47, 48, 49, 70, 90]

/**
 * Greedy tokens of which each is read from one run over the whole text, as the definition has it.
 */
async function reference(engine: TextEngine, prompt: readonly number[]): Promise<number[]> {
  const tokenIds: number[] = []
  for (let index = 0; index < NEW_TOKENS; index += 1) {
    const promptTokenIds = [...prompt, ...tokenIds]
    const cacheScope = `whole ${promptTokenIds.length}`
    const next = await generate(engine, { promptTokenIds, maxNewTokens: 1, cacheScope })
    tokenIds.push(defined(next.tokenIds[0]))
  }
  return tokenIds
}

const prompts = LENGTHS.map((length, index) => makePrompt(index, length))

async function expectedTokens(): Promise<number[][]> {
  const engine = await openEngine('llama-long-rope', { slots: 1, prefillChunk: 256 })
  const expected: number[][] = []
  for (const prompt of prompts) expected.push(await reference(engine, prompt))
  return expected
}

describe('a model with two sets of rotary factors', () => {
  it.each([
    ['in chunks', { prefillChunk: 8 }],
    ['whole', { prefillChunk: 256 }],
    ['in chunks, with the cache on a device', { prefillChunk: 8, ...ON_DEVICE }],
  ])('answers short and long texts alone as together, read %s', async (_, options) => {
    const expected = await expectedTokens()
    const engine = await openEngine('llama-long-rope', options)
    for (const [index, promptTokenIds] of prompts.entries()) {
      const request = { promptTokenIds, maxNewTokens: NEW_TOKENS, cacheScope: `alone ${index}` }
      const alone = await generate(engine, request)
      expect(alone.tokenIds, `${promptTokenIds.length} tokens`).toEqual(expected[index])
    }
    const together = await Promise.all(
      prompts.map((promptTokenIds) => {
        return generate(engine, { promptTokenIds, maxNewTokens: NEW_TOKENS, cacheScope: 'all' })
      }),
    )
    expect(together.map(({ tokenIds }) => tokenIds)).toEqual(expected)
  })

  it('reuses prefixes only of texts of the same kind, and resumes on either side', async () => {
    const expected = await expectedTokens()
    const engine = await openEngine('llama-long-rope', { prefillChunk: 16 })
    const long = makePrompt(LENGTHS.length - 1, 90)
    await generate(engine, { promptTokenIds: long, maxNewTokens: 2 })
    const short = await generate(engine, { promptTokenIds: long.slice(0, 40), maxNewTokens: 2 })
    expect(short.cachedTokens).toBe(0)
    const again = await generate(engine, { promptTokenIds: [...long, 7, 8], maxNewTokens: 2 })
    expect(again.cachedTokens).toBeGreaterThan(SHORT_MAX)
    for (const [index, promptTokenIds] of prompts.entries()) {
      const whole = defined(expected[index])
      for (const taken of [1, 5, 10]) {
        const generatedTokenIds = whole.slice(0, taken)
        const request = { promptTokenIds, generatedTokenIds, maxNewTokens: NEW_TOKENS }
        const { tokenIds } = await generate(engine, { ...request, cacheScope: `${index} ${taken}` })
        expect(tokenIds).toEqual(whole.slice(taken))
      }
    }
  })

  it('drafts no text across the boundary', async () => {
    const expected = await expectedTokens()
    const engine = await openEngine('llama-long-rope')
    for (const [index, promptTokenIds] of prompts.entries()) {
      const whole = [...promptTokenIds, ...defined(expected[index])]
      const drafted = await generate(engine, {
        promptTokenIds,
        maxNewTokens: NEW_TOKENS,
        cacheScope: `draft ${index}`,
        propose: (tokenIds) => whole.slice(tokenIds.length, tokenIds.length + 6),
      })
      expect(drafted.tokenIds).toEqual(expected[index])
    }
  })
})
