import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { resolve } from 'node:path'

import { AutoModelForCausalLM, env, Tensor } from '@huggingface/transformers'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { takeTurns } from './rounds.ts'

/** The file that is shipped, and the same model with a cache that grows by concatenation. */
const SUBJECTS = [
  { root: 'models', model: 'tiny-chat', name: 'tiny-chat' },
  { root: 'models/tiny-chat', model: 'growing', name: 'tiny-chat with a growing cache' },
] as const
const STREAMS = 16
const TOKENS = 96
const END_TOKEN_IDS = [[0], [1], [2]]

/**
 * 16 texts in the engine at once, against transformers.js one after another, on the same ONNX file.
 * Both sides are alone in this process: no HTTP, no queue.
 */
export async function benchTransformersJs(): Promise<readonly Figure[]> {
  const figures: Figure[] = []
  for (const subject of SUBJECTS) figures.push(await benchSubject(subject))
  return figures
}

async function benchSubject({ root, model, name }: (typeof SUBJECTS)[number]): Promise<Figure> {
  env.allowRemoteModels = false
  env.localModelPath = resolve(root)
  const peer = await AutoModelForCausalLM.from_pretrained(model, { dtype: 'q8' })
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: `${root}/${model}`, slots: STREAMS })
  const prompts = Array.from({ length: STREAMS }, (_, stream) => [500 + stream, 600, 700, 800])
  try {
    const ours = (): Promise<number[][]> => {
      const scope = randomUUID()
      const runs = prompts.map((promptTokenIds, stream) =>
        runGreedy(
          engine,
          { promptTokenIds, maxNewTokens: TOKENS, cacheScope: `${scope}-${stream}` },
          END_TOKEN_IDS.length,
        ),
      )
      return Promise.all(runs)
    }
    const theirs = async (): Promise<number[][]> => {
      const texts: number[][] = []
      for (const prompt of prompts) texts.push(await generate(peer, prompt))
      return texts
    }
    assert.deepEqual(await ours(), await theirs(), 'the two sides disagree')
    const speed = async (side: () => Promise<number[][]>): Promise<number> => {
      const startedAt = performance.now()
      await side()
      return (STREAMS * TOKENS * 1000) / (performance.now() - startedAt)
    }
    const found = await takeTurns(
      () => speed(ours),
      () => speed(theirs),
    )
    return {
      name: `${STREAMS} streams of ${name} in the engine ÷ transformers.js in turn, same file`,
      ...{ unit: 'tokens/s', ...found, target: { atLeast: 5 } },
    }
  } finally {
    await engine.close()
    await runtime.close()
    await peer.dispose()
  }
}

async function generate(
  peer: Awaited<ReturnType<typeof AutoModelForCausalLM.from_pretrained>>,
  prompt: readonly number[],
): Promise<number[]> {
  const shape = [1, prompt.length]
  const output = (await peer.generate({
    inputs: new Tensor('int64', BigInt64Array.from(prompt, BigInt), shape),
    attention_mask: new Tensor('int64', new BigInt64Array(prompt.length).fill(1n), shape),
    max_new_tokens: TOKENS,
    do_sample: false,
    bad_words_ids: END_TOKEN_IDS,
  } as Parameters<typeof peer.generate>[0])) as Tensor
  return Array.from(output.data as BigInt64Array, Number).slice(prompt.length)
}
