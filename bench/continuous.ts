import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

const FOLDER = 'models/tiny-chat'
const SLOTS = 16
const TEXTS = 256
const MEAN_TOKENS = 32
const LONGEST_PER_MEAN = 4
const FIRST_WORD = 3 // the tokens before it end a text

/**
 * Texts whose lengths follow a log-normal distribution, through the engine as they come, against
 * the same engine fed with batches of 16 in which every row runs until the longest has ended.
 */
export async function benchContinuous(): Promise<readonly Figure[]> {
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: FOLDER, slots: SLOTS })
  const lengths = logNormalLengths()
  const useful = lengths.reduce((sum, length) => sum + length, 0)
  const run = (text: number, maxNewTokens: number, scope: string): Promise<number[]> =>
    runGreedy(
      engine,
      {
        promptTokenIds: [500 + text, 600, 700, 800],
        maxNewTokens,
        cacheScope: `${scope}-${text}`,
      },
      FIRST_WORD,
    )
  const asTheyCome = (): Promise<number[][]> => {
    const scope = randomUUID()
    return Promise.all(lengths.map((length, text) => run(text, length, scope)))
  }
  const inBatches = async (): Promise<number[][]> => {
    const scope = randomUUID()
    const texts: number[][] = []
    for (let start = 0; start < TEXTS; start += SLOTS) {
      const batch = lengths.slice(start, start + SLOTS)
      const longest = Math.max(...batch)
      const found = await Promise.all(batch.map((_, row) => run(start + row, longest, scope)))
      // Tokens of a row after its own end are dropped, as in any static batch.
      for (const [row, length] of batch.entries()) texts.push((found[row] ?? []).slice(0, length))
    }
    return texts
  }
  const speed = async (side: () => Promise<number[][]>): Promise<number> => {
    const startedAt = performance.now()
    await side()
    return (useful * 1000) / (performance.now() - startedAt)
  }
  try {
    assert.deepEqual(await asTheyCome(), await inBatches(), 'the way of batching changed a text')
    const found = await alternate(
      () => speed(asTheyCome),
      () => speed(inBatches),
    )
    const name = `${TEXTS} texts of log-normal lengths, continuous ÷ static batches of ${SLOTS}, same tokens`
    return [{ name, unit: 'tokens/s', ...found, target: { atLeast: 2.5 } }]
  } finally {
    await engine.close()
    await runtime.close()
  }
}

/** A log-normal sample (σ = 1) in a fixed random order, none longer than four times its mean. */
function logNormalLengths(): readonly number[] {
  const random = randomFrom(9)
  const drawn = Array.from({ length: TEXTS }, () => {
    // Box and Muller's transform of two even numbers into a normal one.
    const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())
    return Math.min(Math.exp(normal - 0.5), LONGEST_PER_MEAN)
  })
  return drawn.map((length) => Math.max(1, Math.round(length * MEAN_TOKENS)))
}

/** Mulberry32: the same even numbers in [0, 1) in every run. */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
