import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

/**
 * The same weights with GroupQueryAttention and with a growing cache; bench/make-decoder.py makes
 * the large ones.
 */
const PAIRS = [
  { inPlace: 'models/tiny-chat', plain: 'models/tiny-chat/growing', contexts: [64, 384] },
  {
    inPlace: '.data/bench/smollm2-shape',
    plain: '.data/bench/smollm2-growing',
    contexts: [64, 1024],
  },
] as const
const ROWS = [1, 4, 8] as const
/** Tokens of a text whose decode steps are timed. */
export const STEP_TOKENS = 24
const FIRST_WORD = 3 // the tokens before it end a text

/**
 * Time of a decode step by the form of the file: rewritten ÷ GroupQueryAttention, and as exported ÷
 * GroupQueryAttention, by length of the context and number of rows.
 */
export async function benchDecoderForms(): Promise<readonly Figure[]> {
  const runtime = openRuntime()
  try {
    const figures: Figure[] = []
    for (const { inPlace, plain, contexts } of PAIRS) {
      if (!existsSync(inPlace) || !existsSync(plain)) continue
      for (const asExported of [false, true]) {
        figures.push(...(await comparePair(runtime, { inPlace, plain, contexts, asExported })))
      }
    }
    return figures
  } finally {
    await runtime.close()
  }
}

async function comparePair(
  runtime: Runtime,
  pair: {
    readonly inPlace: string
    readonly plain: string
    readonly contexts: readonly number[]
    readonly asExported: boolean
  },
): Promise<Figure[]> {
  const { inPlace, plain, contexts, asExported } = pair
  const options = { runtime, slots: Math.max(...ROWS) }
  const ours = await openTextEngine({ ...options, folder: plain, asExported })
  const theirs = await openTextEngine({ ...options, folder: inPlace })
  try {
    assert.equal(ours.cachePath, asExported ? 'growing' : 'rewritten')
    const figures: Figure[] = []
    for (const context of contexts) {
      for (const rows of ROWS) {
        const found = await alternate(
          () => measureStep(ours, context, rows),
          () => measureStep(theirs, context, rows),
        )
        const form = asExported ? 'growing' : 'rewritten'
        const name = `${form} ÷ GroupQueryAttention, ${plain}, ${context} tokens, ${rows} rows`
        const target = { atMost: asExported ? Infinity : 1.15 }
        figures.push({ name, unit: 'ms a step', ...found, target })
      }
    }
    return figures
  } finally {
    await ours.close()
    await theirs.close()
  }
}

/** Milliseconds between the tokens of texts that decode together. */
export async function measureStep(
  engine: TextEngine,
  context: number,
  rows: number,
): Promise<number> {
  const scope = randomUUID()
  const times: number[] = []
  const texts = Array.from({ length: rows }, (_, row) => {
    const promptTokenIds = Array.from(
      { length: context },
      (_unused, at) => 3 + ((at * 7 + row) % 500),
    )
    const request = { promptTokenIds, maxNewTokens: STEP_TOKENS, cacheScope: `${scope}-${row}` }
    const onToken = row === 0 ? () => void times.push(performance.now()) : () => {}
    return runGreedy(engine, { ...request, onToken }, FIRST_WORD)
  })
  await Promise.all(texts)
  // The first tokens wait for the prompts of other rows.
  const settled = times.slice(-Math.floor(STEP_TOKENS / 2))
  return ((settled.at(-1) ?? 0) - (settled[0] ?? 0)) / (settled.length - 1)
}
