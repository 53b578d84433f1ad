import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { generate, greedy, MODELS, type RequestChanges } from './generate.ts'

const runtime = openRuntime()
afterAll(() => runtime.close())

const promptOf = (number: number, length: number): number[] =>
  Array.from({ length }, (_, index) => 5 + ((number * 53 + index * 17) % 300))

describe('a text that goes on in another engine', () => {
  it.each([1, 9, 30, 39])(
    'has the same logits to the last bit after %i tokens, beside others too',
    async (delivered) => {
      const folder = join(MODELS, 'llama-in-place')
      const options = { runtime, folder, onnxFile: 'model', slots: 16, intraOpThreads: 1 }
      const engine = await openTextEngine({ ...options, prefillChunk: 16 })
      const run = async (changes: RequestChanges): Promise<Float32Array[]> => {
        const rows: Float32Array[] = []
        const sampler = {
          next(logits: Float32Array, position: number) {
            rows.push(logits.slice())
            return greedy.next(logits, position)
          },
        }
        await generate(engine, { maxNewTokens: 40, sampler, ...changes })
        return rows
      }
      const promptTokenIds = promptOf(7, 33)
      const whole = await run({ promptTokenIds, cacheScope: 'a' })
      const generatedTokenIds = whole
        .slice(0, delivered)
        .map((logits, position) => greedy.next(logits, position).tokenId)
      const [rest] = await Promise.all([
        run({ promptTokenIds, generatedTokenIds, cacheScope: 'b' }),
        run({ promptTokenIds: promptOf(8, 21), cacheScope: 'b' }),
        run({ promptTokenIds, generatedTokenIds: [3, 1, 4], cacheScope: 'b' }),
      ])
      expect(rest).toEqual(whole.slice(delivered))
      await engine.close()
    },
  )
})
