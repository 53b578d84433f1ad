import { afterAll, describe, expect, it } from 'vitest'

import { CancelledError } from '#shared/errors.ts'
import { defined } from '#shared/json.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'

import { generate, MODELS } from './generate.ts'
import { AS_EXPORTED } from './open-engine.ts'

const REQUESTS = 64
const CHUNK = 5
const runtime = openRuntime()
afterAll(() => runtime.close())

interface Request {
  readonly promptTokenIds: readonly number[]
  readonly maxNewTokens: number
  readonly cacheScope: string
  /** The step of the engine after which the caller goes away; undefined where it stays. */
  readonly leavesAt: number | undefined
}

/**
 * Prompts that share beginnings, of lengths around the cuts of a run and the end of the context.
 */
function makeCrowd(contextLength: number): Request[] {
  const lengths = [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 1, 40, contextLength - 1]
  return Array.from({ length: REQUESTS }, (_, index) => {
    const draw = (what: number, count: number): number =>
      Math.floor(uniformAt(3, index, what) * count)
    const length = defined(lengths[draw(0, lengths.length)])
    const start = draw(1, 3)
    return {
      promptTokenIds: Array.from({ length }, (_, at) => 3 + (((start + 1) * (at + 7)) % 300)),
      maxNewTokens: draw(2, 12),
      cacheScope: `scope ${draw(3, 2)}`,
      leavesAt: draw(4, 3) === 0 ? draw(5, 60) : undefined,
    }
  })
}

/** Runs one request; undefined where its caller went away first. */
async function attend(engine: TextEngine, { leavesAt, ...request }: Request) {
  const caller = new AbortController()
  let steps = 0
  engine.onStep(() => {
    steps += 1
    if (steps === leavesAt) caller.abort()
  })
  try {
    return await generate(engine, { ...request, signal: caller.signal })
  } catch (error) {
    expect(error).toBeInstanceOf(CancelledError)
    return undefined
  }
}

describe('a crowd of texts, some of which are aborted', () => {
  it.each([
    ['llama-in-place', 'model', 'host'],
    ['llama', 'model', 'host'],
    ['llama', 'model', 'host', AS_EXPORTED],
    // The path of a GPU, on a processor.
    ['llama-in-place', 'model', 'device'],
    ['llama', 'model', 'device', AS_EXPORTED],
    // One row's scale must not reach another's numbers, with any cache.
    ['llama-in-place-dynamic', 'model_quantized', 'host'],
    ['llama', 'model_quantized', 'host'],
    ['llama', 'model_quantized', 'host', AS_EXPORTED],
    // Memory for one or two of the longest texts, and slots for many short ones.
    ['llama-in-place', 'model', 'host', { slotsMax: 24 }],
    ['llama', 'model_quantized', 'host', { slotsMax: 24 }],
    ['lfm2', 'model', 'host', { slotsMax: 24 }],
    ['granite-4-h', 'model', 'host', { slotsMax: 24 }],
  ] as const)('each reads as if it were alone: %s, %s, %s, %o', async (...row) => {
    const [name, onnxFile, cacheMemory, form = {}] = row
    const folder = `${MODELS}/${name}`
    const shared = { runtime, folder, onnxFile, cacheMemory, ...form }
    const options = { ...shared, prefillChunk: CHUNK, intraOpThreads: 1 }
    const open = (slots: number): Promise<TextEngine> => openTextEngine({ ...options, slots })
    const [engine, alone] = await Promise.all([open('slotsMax' in form ? 2 : 6), open(1)])
    try {
      const crowd = makeCrowd(engine.contextLength)
      const answers = await Promise.all(crowd.map((request) => attend(engine, request)))
      expect(answers.filter((answer) => answer === undefined).length).toBeGreaterThan(5)
      await expect.poll(() => engine.stats()).toMatchObject({ active: 0, waiting: 0 })
      for (const [index, answer] of answers.entries()) {
        if (answer === undefined) continue
        // A scope of its own: nothing comes from a cache.
        const expected = await generate(alone, { ...defined(crowd[index]), cacheScope: `${index}` })
        expect(answer).toMatchObject({ tokenIds: expected.tokenIds, reason: expected.reason })
      }
    } finally {
      await engine.close()
      await alone.close()
    }
  })
})
