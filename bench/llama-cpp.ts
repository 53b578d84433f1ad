import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import type { Figure } from './figure.ts'
import { runGreedy } from './greedy.ts'
import { alternate } from './rounds.ts'

// Both made by bench/peers/install-llama-cpp.sh.
const PACKAGE = '.data/peers/llama-cpp/node_modules/node-llama-cpp/dist/index.js'
const FOLDER = '.data/bench/smollm2-shape-8-bit'
const STREAMS = 16
const TOKENS = 48
const CONTEXT_TOKENS = 128
const THREADS = 2
// Rounding of activations differs between the two; random weights hide that for a few words.
const SURE = 6
const FIRST_WORD = 300 // the tokens before it are marks and bytes to llama.cpp

/** As much of node-llama-cpp as is asked here. */
interface LlamaSequence {
  evaluate(
    tokens: readonly number[],
    options: { readonly temperature: number; readonly yieldEogToken: boolean },
  ): AsyncGenerator<number>
  clearHistory(): Promise<void>
}
interface LlamaContext {
  getSequence(): LlamaSequence
  dispose(): Promise<void>
}
interface LlamaPackage {
  getLlama(options: object): Promise<{
    loadModel(options: { readonly modelPath: string }): Promise<{
      createContext(options: object): Promise<LlamaContext>
      dispose(): Promise<void>
    }>
    dispose(): Promise<void>
  }>
}

/** Output tokens per second of the same eight-bit weights, in the engine and in llama.cpp. */
export async function benchLlamaCpp(): Promise<readonly Figure[]> {
  if (!existsSync(PACKAGE) || !existsSync(FOLDER)) return []
  const { getLlama } = (await import(pathToFileURL(resolve(PACKAGE)).href)) as LlamaPackage
  const llama = await getLlama({
    gpu: false,
    build: 'never',
    skipDownload: true,
    // Its words are placeholders, which it would remark upon.
    logLevel: 'error',
  })
  const model = await llama.loadModel({ modelPath: resolve(FOLDER, 'model-q8_0.gguf') })
  const runtime = openRuntime()
  const engine = await openTextEngine({ runtime, folder: FOLDER, slots: STREAMS })
  try {
    const ours = (streams: number) => async (): Promise<number[][]> => {
      const scope = randomUUID()
      const runs = promptsOf(streams).map((promptTokenIds, stream) =>
        runGreedy(
          engine,
          { promptTokenIds, maxNewTokens: TOKENS, cacheScope: `${scope}-${stream}` },
          FIRST_WORD,
        ),
      )
      return Promise.all(runs)
    }
    const figures: Figure[] = []
    for (const [streams, atLeast] of [
      [STREAMS, 1],
      [1, 0.8],
    ] as const) {
      const context = await model.createContext({
        sequences: streams,
        contextSize: CONTEXT_TOKENS,
        threads: THREADS,
        batchSize: STREAMS * 4,
      })
      const sequences = Array.from({ length: streams }, () => context.getSequence())
      const theirs = (): Promise<number[][]> =>
        Promise.all(
          promptsOf(streams).map((prompt, at) => generate(sequences[at] as LlamaSequence, prompt)),
        )
      const [first, other] = [(await ours(1)())[0], (await theirs())[0]]
      assert.deepEqual(first?.slice(0, SURE), other?.slice(0, SURE), 'the two sides disagree')
      const found = await alternate(
        () => speed(streams, ours(streams)),
        () => speed(streams, theirs),
      )
      await context.dispose()
      figures.push({
        name: `${streams} stream(s) of SmolLM2-135M's shape in eight bits ÷ llama.cpp, Q8_0`,
        unit: 'tokens/s',
        ...found,
        target: { atLeast },
      })
    }
    return figures
  } finally {
    await engine.close()
    await runtime.close()
    await model.dispose()
    await llama.dispose()
  }
}

const promptsOf = (streams: number): number[][] =>
  Array.from({ length: streams }, (_, stream) => [500 + stream, 600, 700, 800])

async function generate(sequence: LlamaSequence, prompt: readonly number[]): Promise<number[]> {
  await sequence.clearHistory()
  const tokenIds: number[] = []
  const options = { temperature: 0, yieldEogToken: true }
  for await (const tokenId of sequence.evaluate(prompt, options)) {
    if (tokenIds.push(tokenId) === TOKENS) break
  }
  return tokenIds
}

async function speed(streams: number, side: () => Promise<number[][]>): Promise<number> {
  const startedAt = performance.now()
  const texts = await side()
  const ms = performance.now() - startedAt
  assert.ok(
    texts.every(({ length }) => length === TOKENS),
    'a text is shorter than it should be',
  )
  return (streams * TOKENS * 1000) / ms
}
