import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { expect, it } from 'vitest'

import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { batchesOf } from '#workers/training/batches.ts'
import type { TokenizedExample } from '#workers/training/examples.ts'
import { LossModel } from '#workers/training/loss-model.ts'
import { MatrixLayout } from '#workers/training/matrices.ts'
import { AdamW } from '#workers/training/optimizer.ts'
import { readTrainingGraph } from '#workers/training/run-training.ts'
import { train } from '#workers/training/trainer.ts'

// Losses of torch and PEFT in single precision; see make-training-curve.py.
const golden = JSON.parse(
  readFileSync(join(import.meta.dirname, 'training-curve.json'), 'utf8'),
) as { readonly order: readonly (readonly number[])[]; readonly losses: readonly number[] }

const SHAPE = { rank: 4, alpha: 8 }
const SETTINGS = { ...SHAPE, epochs: 100, batchSize: 3, learningRate: 0.003 }
const SEED = 7
const LENGTHS = [9, 14, 6, 21, 11, 17]
const TOLERANCE = 1e-3

it('has the losses of torch and PEFT at each of 200 steps, padded or packed', async () => {
  const order = golden.order.map((_, epoch) =>
    batchesOf([...LENGTHS.keys()], { seed: SEED, epoch, batchSize: 3 }).flat(),
  )
  expect(order).toEqual(golden.order)
  const runtime = openRuntime()
  for (const limits of [
    { tokensMax: 1024, packs: true },
    { tokensMax: 24, packs: false },
  ]) {
    const losses = await trainedLosses(runtime, limits)
    expect(losses).toHaveLength(200)
    const errors = losses.map((loss, step) => Math.abs(loss - (golden.losses[step] ?? NaN)))
    expect(Math.max(...errors)).toBeLessThan(TOLERANCE)
  }
  await runtime.close()
})

async function trainedLosses(
  runtime: ReturnType<typeof openRuntime>,
  limits: { readonly tokensMax: number; readonly packs: boolean },
): Promise<number[]> {
  const folder = join(MODELS, 'llama-in-place')
  const { graph, file } = await readTrainingGraph({ folder, runtime }, SHAPE)
  const layout = new MatrixLayout(graph.matrices, SHAPE.rank)
  const elements = new Float32Array(layout.size)
  const inputs = layout.inputs(runtime, elements)
  for (const [number, { a }] of graph.matrices.entries()) {
    const values = inputs[a]?.data as Float32Array
    for (const index of values.keys()) {
      values[index] = (((index * 7919 + number * 104729) % 2003) / 2003 - 0.5) / 2
    }
  }
  const session = { intraOpThreads: 1 }
  const model = await LossModel.open(runtime, graph, { file, layout, elements, session })
  const plan = {
    settings: SETTINGS,
    seed: SEED,
    examples: EXAMPLES,
    validation: [],
    replay: [],
    limits,
  }
  const reached = {
    trainedTokens: 0,
    trainLoss: 0,
    validationLoss: null,
    best: null,
    staleEpochs: 0,
  }
  const state = { model, optimizer: new AdamW(elements), reached }
  const losses: number[] = []
  const tools = { signal: new AbortController().signal, yieldNow: async () => {} }
  for await (const { trainLoss } of train(plan, state, tools)) losses.push(trainLoss)
  await model.close()
  return losses
}

const EXAMPLES: readonly TokenizedExample[] = LENGTHS.map((length, example) => ({
  tokenIds: Array.from({ length }, (_, at) => (7 + 13 * example + 29 * at * (at + example)) % 320),
  // The first third of an example is its prompt.
  isTarget: Array.from({ length }, (_, at) => at >= Math.floor(length / 3)),
}))
