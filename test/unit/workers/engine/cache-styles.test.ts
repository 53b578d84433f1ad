import { afterEach, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import type { TextEngineOptions } from '#workers/engine/open-text-engine.ts'

import { generate, greedy } from './generate.ts'
import { AS_EXPORTED, closeEngines, makePrompt, ON_DEVICE, openEngine } from './open-engine.ts'

afterEach(closeEngines)

const STYLES: readonly [string, Partial<TextEngineOptions>][] = [
  ...['llama-in-place', 'llama', 'gpt2', 'gemma', 'qwen3-in-place'].map(
    (name): [string, Partial<TextEngineOptions>] => [name, {}],
  ),
  ['llama-in-place', ON_DEVICE],
  ['gpt2', ON_DEVICE],
  ['llama', AS_EXPORTED],
  ['gpt2', { ...ON_DEVICE, ...AS_EXPORTED }],
  ['llama', { ...ON_DEVICE, ...AS_EXPORTED, onnxFile: 'model_fp16' }],
]

describe.each(STYLES)('%s, %o', (name, options) => {
  it.each([1, 2, 5, 15])(
    'gives a sequence the same tokens beside %i others',
    async (neighbours) => {
      const engine = await openEngine(name, { ...options, prefillChunk: 16 })
      const prompts = Array.from({ length: neighbours + 1 }, (_, index) =>
        makePrompt(index, 3 + ((index * 11) % 40)),
      )
      const alone: number[][] = []
      for (const promptTokenIds of prompts) {
        const own = { promptTokenIds, maxNewTokens: 24, cacheScope: `${Math.random()}` }
        alone.push((await generate(engine, own)).tokenIds)
      }
      const together = await Promise.all(
        prompts.map((promptTokenIds, index) =>
          // Different lengths, so that sequences leave between steps.
          generate(engine, { promptTokenIds, maxNewTokens: 24 - index, cacheScope: `${index}` }),
        ),
      )
      expect(together.map(({ tokenIds }) => tokenIds)).toEqual(
        alone.map((tokenIds, index) => tokenIds.slice(0, 24 - index)),
      )
    },
  )

  it('continues unchanged after a resumption', async () => {
    const engine = await openEngine(name, options)
    const promptTokenIds = makePrompt(1, 20)
    const whole = await generate(engine, { promptTokenIds, maxNewTokens: 20, cacheScope: 'a' })
    const generatedTokenIds = whole.tokenIds.slice(0, 9)
    const resumed = { promptTokenIds, generatedTokenIds, maxNewTokens: 20, cacheScope: 'b' }
    const rest = await generate(engine, resumed)
    expect(rest.tokenIds).toEqual(whole.tokenIds.slice(9))
  })

  it('starts from a finished prefix of the same scope, and from no other', async () => {
    const engine = await openEngine(name, options)
    const first = makePrompt(2, 30)
    const answer = await generate(engine, { promptTokenIds: first, cacheScope: 'a' })
    const promptTokenIds = [...first, ...answer.tokenIds, 9, 8, 7]
    const elsewhere = await generate(engine, { promptTokenIds, cacheScope: 'b' })
    const reused = await generate(engine, { promptTokenIds, cacheScope: 'a' })
    const branched = await generate(engine, { promptTokenIds, cacheScope: 'a' })
    expect(elsewhere.cachedTokens).toBe(0)
    expect(reused.cachedTokens).toBe(first.length + answer.tokenIds.length - 1)
    expect(branched.cachedTokens).toBe(promptTokenIds.length - 2)
    expect(reused.tokenIds).toEqual(elsewhere.tokenIds)
    expect(branched.tokenIds).toEqual(elsewhere.tokenIds)
  })

  it('reads prompts that arrive together in one run, with the same bits', async () => {
    const engine = await openEngine(name, options)
    const isInPlace = name.endsWith('in-place')
    const lengths = isInPlace ? [5, 7, 9, 6] : [7, 7, 7, 7]
    const read = async (index: number, cacheScope: string): Promise<Float32Array[]> => {
      const seen: Float32Array[] = []
      const sampler = {
        next(logits: Float32Array, position: number) {
          seen.push(logits.slice())
          return greedy.next(logits, position)
        },
      }
      const promptTokenIds = makePrompt(index, defined(lengths[index]))
      await generate(engine, { promptTokenIds, sampler, maxNewTokens: 1, cacheScope })
      return seen
    }
    const alone: Float32Array[][] = []
    for (const index of lengths.keys()) alone.push(await read(index, `alone ${index}`))
    const before = engine.stats().steps
    const together = await Promise.all(lengths.map((_, index) => read(index, `${index}`)))
    expect(engine.stats().steps - before).toBe(1)
    expect(together).toEqual(alone)
  })

  it('computes a prompt once for several candidates', async () => {
    const engine = await openEngine(name, { ...options, prefillChunk: 8 })
    const promptTokenIds = makePrompt(3, 40)
    const alone = await generate(engine, { promptTokenIds, cacheScope: 'other' })
    const candidates = await Promise.all(
      Array.from({ length: 4 }, () => generate(engine, { promptTokenIds })),
    )
    for (const { tokenIds } of candidates) expect(tokenIds).toEqual(alone.tokenIds)
    const cached = candidates.map(({ cachedTokens }) => cachedTokens)
    expect(cached).toEqual([0, 38, 38, 38])
  })
})
