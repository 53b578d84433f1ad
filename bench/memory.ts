import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'

const FOLDER = '.data/bench/smollm2-shape'
const PROMPT_TOKENS = 500
const NEW_TOKENS = 12
const EXTRA_STREAMS = 15

/**
 * Measures the growth of the process when 15 more streams fill their caches, per stream, against
 * the bytes of the keys and values themselves. Runs once per process, because touched memory stays
 * resident.
 */
export async function benchMemory(): Promise<readonly Figure[]> {
  if (!existsSync(FOLDER)) return []
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: FOLDER, slots: EXTRA_STREAMS + 1 })
  try {
    const run = (stream: number): Promise<number[]> =>
      runGreedy(engine, {
        promptTokenIds: Array.from(
          { length: PROMPT_TOKENS },
          (_, i) => 10 + ((i * 7 + stream) % 2000),
        ),
        maxNewTokens: NEW_TOKENS,
        cacheScope: `${stream}`,
      })
    await run(0)
    const before = process.memoryUsage.rss()
    await Promise.all(Array.from({ length: EXTRA_STREAMS }, (_, index) => run(index + 1)))
    const ours = (process.memoryUsage.rss() - before) / EXTRA_STREAMS
    const theirs = (PROMPT_TOKENS + NEW_TOKENS) * (await cacheBytesPerToken())
    const name = `resident memory per extra stream of ${PROMPT_TOKENS + NEW_TOKENS} tokens ÷ its cache`
    const toMiB = (bytes: number): number => bytes / 2 ** 20
    return [
      { name, unit: 'MiB', ours: toMiB(ours), theirs: toMiB(theirs), target: { atMost: 1.1 } },
    ]
  } finally {
    await engine.close()
    await runtime.close()
  }
}

/** Keys and values of every layer, in 32-bit numbers. */
async function cacheBytesPerToken(): Promise<number> {
  const config = JSON.parse(await readFile(join(FOLDER, 'config.json'), 'utf8')) as {
    num_hidden_layers: number
    num_key_value_heads: number
    head_dim: number
  }
  return 2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
}
