import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'

import { AutoModelForCausalLM, env, Tensor } from '@huggingface/transformers'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

interface Subject {
  readonly root: string
  readonly model: string
  readonly name: string
  readonly dtype: 'q8' | 'fp32'
  /** Tokens of each text. */
  readonly tokens: number
  readonly atLeast: number
}

const TINY = { dtype: 'q8', tokens: 96, atLeast: 6 } as const
const SUBJECTS: readonly Subject[] = [
  // The file that is shipped, and the same model with a cache that grows by concatenation.
  { root: 'models', model: 'tiny-chat', name: 'tiny-chat', ...TINY },
  { root: 'models/tiny-chat', model: 'growing', name: 'tiny-chat with a growing cache', ...TINY },
  {
    root: '.data/bench',
    model: 'smollm2-shape',
    name: "SmolLM2-135M's shape",
    dtype: 'fp32',
    tokens: 32,
    atLeast: 8,
  },
]
const STREAMS = 16
const END_TOKEN_IDS = [[0], [1], [2]]

/**
 * 16 texts in the engine at once, against transformers.js one after another, on the same ONNX file.
 * Both sides are alone in this process: no HTTP, no queue.
 */
export async function benchTransformersJs(): Promise<readonly Figure[]> {
  const figures: Figure[] = []
  for (const subject of SUBJECTS) {
    const isThere = existsSync(join(subject.root, subject.model))
    if (isThere) figures.push(await benchSubject(subject))
  }
  return figures
}

async function benchSubject(subject: Subject): Promise<Figure> {
  const { root, model, name, dtype, tokens, atLeast } = subject
  env.allowRemoteModels = false
  env.localModelPath = resolve(root)
  const peer = await AutoModelForCausalLM.from_pretrained(model, { dtype })
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: `${root}/${model}`, slots: STREAMS })
  const prompts = Array.from({ length: STREAMS }, (_, stream) => [500 + stream, 600, 700, 800])
  try {
    const ours = (): Promise<number[][]> => {
      const scope = randomUUID()
      const runs = prompts.map((promptTokenIds, stream) =>
        runGreedy(
          engine,
          { promptTokenIds, maxNewTokens: tokens, cacheScope: `${scope}-${stream}` },
          END_TOKEN_IDS.length,
        ),
      )
      return Promise.all(runs)
    }
    const theirs = async (): Promise<number[][]> => {
      const texts: number[][] = []
      for (const prompt of prompts) texts.push(await generate(peer, prompt, tokens))
      return texts
    }
    assert.deepEqual(await ours(), await theirs(), 'the two sides disagree')
    const speed = async (side: () => Promise<number[][]>): Promise<number> => {
      const startedAt = performance.now()
      await side()
      return (STREAMS * tokens * 1000) / (performance.now() - startedAt)
    }
    const found = await alternate(
      () => speed(ours),
      () => speed(theirs),
    )
    return {
      name: `${STREAMS} streams of ${name} in the engine ÷ transformers.js in turn, same file`,
      unit: 'tokens/s',
      ...found,
      target: { atLeast },
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
  tokens: number,
): Promise<number[]> {
  const shape = [1, prompt.length]
  const output = (await peer.generate({
    inputs: new Tensor('int64', BigInt64Array.from(prompt, BigInt), shape),
    attention_mask: new Tensor('int64', new BigInt64Array(prompt.length).fill(1n), shape),
    max_new_tokens: tokens,
    do_sample: false,
    bad_words_ids: END_TOKEN_IDS,
  } as Parameters<typeof peer.generate>[0])) as Tensor
  return Array.from(output.data as BigInt64Array, Number).slice(prompt.length)
}
