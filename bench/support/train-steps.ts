import { openRuntime } from '#workers/runtime/runtime.ts'
import type { TokenizedExample } from '#workers/training/examples.ts'
import { LossModel } from '#workers/training/loss-model.ts'
import { MatrixLayout } from '#workers/training/matrices.ts'
import { readTrainingGraph } from '#workers/training/run-training.ts'
import { train } from '#workers/training/trainer.ts'
import { beginState } from '#workers/training/training-state.ts'

// Trains steps in a process of its own, as bench/peers/peft-steps.py does: one time a line, in
// seconds. Arguments are the folder of the model, rank, texts of a step, tokens of a text, steps.
const [folder = '', ...numbers] = process.argv.slice(2)
const [rank = 0, batchSize = 0, length = 0, steps = 0] = numbers.map(Number)

const runtime = openRuntime()
const shape = { rank, alpha: 2 * rank }
const { graph, file } = await readTrainingGraph({ folder, runtime }, shape)
const layout = new MatrixLayout(graph.matrices, rank)
const { optimizer, reached } = beginState(layout.initialize(1))
const { elements } = optimizer
const model = await LossModel.open(runtime, graph, { file, layout, elements, session: {} })
const examples = Array.from(
  { length: batchSize },
  (_, text): TokenizedExample => ({
    tokenIds: Array.from({ length }, (_unused, at) => 3 + ((at * 7 + text * 31) % 500)),
    isTarget: Array.from({ length }, () => true),
  }),
)
const plan = {
  settings: { ...shape, epochs: steps, batchSize, learningRate: 1e-4 },
  seed: 1,
  examples,
  validation: [],
  replay: [],
  limits: { tokensMax: batchSize * length, packs: graph.hasSegments },
}
const tools = { signal: new AbortController().signal, yieldNow: async () => {} }
let startedAt = performance.now()
for await (const _step of train(plan, { model, optimizer, reached }, tools)) {
  process.stdout.write(`${(performance.now() - startedAt) / 1000}\n`)
  startedAt = performance.now()
}
await model.close()
await runtime.close()
