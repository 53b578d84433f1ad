import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { MODELS } from '#test/unit/workers/engine/generate.ts'
import { findDecoderFile } from '#workers/engine/model-files.ts'
import type { GraphNode } from '#workers/graph/model.ts'
import { openRuntime, type Runtime } from '#workers/runtime/runtime.ts'
import { uniformAt } from '#workers/sampling/counter-random.ts'
import type { Layout } from '#workers/training/batches.ts'
import { LossModel } from '#workers/training/loss-model.ts'
import { MatrixLayout } from '#workers/training/matrices.ts'
import { readTrainingGraph } from '#workers/training/run-training.ts'

const SHAPE = { rank: 2, alpha: 4 }
const TEXTS = [
  [5, 9, 30, 31, 7, 12, 40, 8, 22],
  [11, 6, 90, 17, 33],
]
const NUM_TARGETS = 12
const ONE_THREAD = { intraOpThreads: 1 }
const OPTIONS = { weight: 1 / NUM_TARGETS, signal: new AbortController().signal }
const STEP = 0.02

/**
 * Decoders of several exporters and quantizers, and by how much their loss may differ: activations
 * are not quantized in a training.
 */
const DECODERS: readonly (readonly [string, string, number])[] = [
  ['llama', 'model_fp16', 1e-2],
  ['llama', 'model_q4', 1e-5],
  ['llama-in-place-dynamic', 'model_quantized', 2e-2],
  ['gemma2', 'model', 1e-5],
  ['gpt2', 'model', 1e-5],
  ['bloom', 'model', 1e-5],
]

let runtime: Runtime
beforeAll(() => {
  runtime = openRuntime()
})
afterAll(() => runtime.close())

describe('the training graph of a decoder', () => {
  it.each(DECODERS)('%s (%s) has its loss, and the slope of it', async (name, onnxFile, off) => {
    const options = { folder: join(MODELS, name), onnxFile, runtime }
    const { graph, file } = await readTrainingGraph(options, SHAPE)
    const layout = new MatrixLayout(graph.matrices, SHAPE.rank)
    const elements = layout.initialize(1)
    const model = await LossModel.open(runtime, graph, {
      file,
      layout,
      elements,
      session: ONE_THREAD,
    })
    const examples = TEXTS.map((tokenIds) => ({ tokenIds, isTarget: tokenIds.map(() => true) }))
    // Where the attention is known, both texts share a row.
    const texts: Layout = graph.hasSegments ? [examples] : examples.map((example) => [example])
    const { loss } = await model.differentiate(texts, OPTIONS)
    expect(Math.abs(loss / (await lossOf(options)) - 1)).toBeLessThan(off)

    const start = elements.map((_, index) => (uniformAt(2, 0, index) - 0.5) / 5)
    elements.set(start)
    await model.differentiate(texts, OPTIONS)
    const norm = Math.sqrt(model.gradients.reduce((sum, part) => sum + part * part, 0))
    const lossAt = async (step: number): Promise<number> => {
      for (const [index, part] of model.gradients.entries()) {
        elements[index] = defined(start[index]) + (step * part) / norm
      }
      return (await model.evaluate(texts, OPTIONS)).loss
    }
    // Along its gradient, a function rises by the length of the gradient.
    const slope = ((await lossAt(STEP)) - (await lossAt(-STEP))) / (2 * STEP)
    expect(slope / norm).toBeCloseTo(1, 2)
    await model.close()
  })
})

describe('the backward pass', () => {
  it.each(['llama-in-place', 'gemma2'])(
    'keeps only products and sums of layers: %s',
    async (name) => {
      const options = { folder: join(MODELS, name), runtime }
      const { graph } = await readTrainingGraph(options, SHAPE)
      const forward = new Set(graph.evaluation.graph.nodes.flatMap(({ outputs }) => outputs))
      const trained = graph.matrices.flatMap(({ a, b }) => [a, b])
      const active = new Set(trained)
      const producers = new Map<string, GraphNode>()
      for (const node of graph.evaluation.graph.nodes) {
        for (const output of node.outputs) {
          producers.set(output, node)
          if (node.inputs.some((input) => active.has(input))) active.add(output)
        }
      }
      const backward = graph.training.graph.nodes.filter(
        ({ outputs }) => !outputs.some((output) => forward.has(output)),
      )
      const read = new Set(backward.flatMap(({ inputs }) => inputs))
      const kept = [...read].filter((tensor) => active.has(tensor) && producers.has(tensor))
      const operators = new Set(kept.map((tensor) => producers.get(tensor)?.operator))
      expect(operators).not.toContain('Softmax')
      expect(operators).toContain('MatMul')
      const recomputed = backward.filter(({ operator }) => operator === 'Softmax')
      expect(recomputed).toHaveLength(2)
    },
  )
})

/** The mean loss of the texts by the logits of the decoder as it is served. */
async function lossOf(options: { readonly folder: string; readonly onnxFile: string }) {
  const session = await runtime.load(await findDecoderFile(options.folder, options), ONE_THREAD)
  const losses: number[] = []
  for (const text of TEXTS) {
    const list = (values: readonly number[]) =>
      runtime.tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length])
    const known: Readonly<Record<string, () => ReturnType<typeof list>>> = {
      input_ids: () => list(text),
      attention_mask: () => list(text.map(() => 1)),
      position_ids: () => list(text.map((_, index) => index)),
    }
    const feeds = session.inputs.map(({ name, type, dims }) => {
      const empty = dims.map((size, axis) => (typeof size === 'number' ? size : axis === 0 ? 1 : 0))
      return [name, known[name]?.() ?? runtime.zeros(type ?? 'float32', empty)] as const
    })
    const { logits } = await session.run(Object.fromEntries(feeds), { logits: null })
    const values = Array.from(logits.data, Number)
    const size = values.length / text.length
    for (const [at, next] of text.slice(1).entries()) {
      const row = values.slice(at * size, (at + 1) * size)
      const sum = row.reduce((total, value) => total + Math.exp(value), 0)
      losses.push(Math.log(sum) - defined(row[next]))
    }
  }
  await session.close()
  return losses.reduce((sum, loss) => sum + loss, 0) / losses.length
}
