import { dirname } from 'node:path'

import type { GraphValue, Model } from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Feeds, ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import { inputsOf, type Layout, type RunInputs } from './batches.ts'
import type { MatrixLayout } from './matrices.ts'
import { CORRECT, LOSS, TARGETS, type TrainingGraph } from './training-graph.ts'

/** Sums over the targets of a run. */
interface RunSums {
  /** The sum of the losses, times the given weight. */
  readonly loss: number
  readonly correct: number
  readonly targets: number
}

interface RunOptions {
  /** The weight of each target. */
  readonly weight: number
  readonly signal: AbortSignal
}

/** The sessions of a training over one array of trained elements. */
export class LossModel {
  readonly gradients: Float32Array<ArrayBuffer>
  readonly #runtime: Runtime
  readonly #training: ModelSession
  readonly #openEvaluation: () => Promise<ModelSession>
  readonly #matrices: Readonly<Record<string, Tensor>>
  readonly #gradientTensors: Readonly<Record<string, Tensor>>
  #evaluation: Promise<ModelSession> | undefined

  private constructor(
    runtime: Runtime,
    training: ModelSession,
    parts: {
      readonly layout: MatrixLayout
      readonly elements: Float32Array<ArrayBuffer>
      readonly openEvaluation: () => Promise<ModelSession>
    },
  ) {
    const { layout, elements, openEvaluation } = parts
    this.#runtime = runtime
    this.#training = training
    this.#openEvaluation = openEvaluation
    this.gradients = new Float32Array(layout.size)
    this.#matrices = layout.inputs(runtime, elements)
    this.#gradientTensors = layout.gradients(runtime, this.gradients)
  }

  /** Loads the graph with gradients. `file` is the location of the decoder's weights. */
  static async open(
    runtime: Runtime,
    graph: TrainingGraph,
    {
      file,
      session,
      layout,
      elements,
    }: {
      readonly file: string
      readonly session: SessionOptions
      readonly layout: MatrixLayout
      readonly elements: Float32Array<ArrayBuffer>
    },
  ): Promise<LossModel> {
    // Runs have so many rows that packing their matrices each time takes hardly any time.
    const options = { ...session, prepacksWeights: false }
    const load = (model: Model): Promise<ModelSession> =>
      runtime.load({ name: file, bytes: writeModel(model), folder: dirname(file) }, options)
    const training = await load(graph.training)
    return closeOnFailure(
      training,
      async () =>
        new LossModel(runtime, training, {
          layout,
          elements,
          openEvaluation: () => load(graph.evaluation),
        }),
    )
  }

  /** Runs forward and backward; `gradients` holds those of this run afterwards. */
  async differentiate(layout: Layout, options: RunOptions): Promise<RunSums> {
    return await this.#run(this.#training, layout, { ...options, outputs: this.#gradientTensors })
  }

  /** Runs forward only. The session for it is loaded on first use. */
  async evaluate(layout: Layout, options: RunOptions): Promise<RunSums> {
    this.#evaluation ??= this.#openEvaluation()
    return await this.#run(await this.#evaluation, layout, { ...options, outputs: {} })
  }

  async close(): Promise<void> {
    const tensors = [this.#matrices, this.#gradientTensors].flatMap((all) => Object.values(all))
    await this.#training.close()
    await this.#evaluation?.then((session) => session.close()).catch(() => undefined)
    for (const tensor of tensors) tensor.dispose()
  }

  async #run(
    session: ModelSession,
    layout: Layout,
    options: RunOptions & { readonly outputs: Readonly<Record<string, Tensor>> },
  ): Promise<RunSums> {
    const inputs = inputsOf(layout)
    const targets = inputs.targetIds.length
    const own = this.#feeds(session, inputs, options.weight)
    try {
      const { signal, outputs } = options
      const wanted = { [LOSS]: null, [CORRECT]: null, ...outputs }
      const found = await session.run({ ...own, ...this.#matrices }, wanted, { signal })
      const [loss, correct] = [found[LOSS], found[CORRECT]]
      const sums = { loss: Number(loss.data[0]), correct: Number(correct.data[0]), targets }
      loss.dispose()
      correct.dispose()
      return sums
    } finally {
      for (const tensor of Object.values(own)) tensor.dispose()
    }
  }

  #feeds(session: ModelSession, inputs: RunInputs, weight: number): Feeds {
    const { rows, width, targetRows, targetIds } = inputs
    const count = targetIds.length
    const list = (data: BigInt64Array): Tensor => this.#runtime.tensor('int64', data, [data.length])
    const grid = (data: BigInt64Array): Tensor => this.#runtime.tensor('int64', data, [rows, width])
    const known: Readonly<Record<string, () => Tensor>> = {
      input_ids: () => grid(inputs.ids),
      attention_mask: () => grid(inputs.mask),
      position_ids: () => grid(inputs.positions),
      segment_ids: () => grid(inputs.segments),
      [TARGETS.rows]: () => list(targetRows),
      [TARGETS.ids]: () => list(targetIds),
      [TARGETS.weights]: () =>
        this.#runtime.tensor('float32', new Float32Array(count).fill(weight), [count]),
    }
    const feeds: Record<string, Tensor> = {}
    for (const { name, type, dims } of session.inputs) {
      if (name in this.#matrices) continue
      // Inputs of a cache are empty, because a training runs whole texts.
      const empty = dims.map((size, axis) =>
        typeof size === 'number' ? size : axis === 0 ? rows : 0,
      )
      feeds[name] = known[name]?.() ?? this.#runtime.zeros(type ?? 'float32', empty)
    }
    return feeds
  }
}

/** Inputs of decoders that a training can feed. */
export function isFed({ name }: GraphValue): boolean {
  return (
    ['input_ids', 'attention_mask', 'position_ids'].includes(name) ||
    ['num_logits_to_keep', 'logits_to_keep'].includes(name) ||
    name.startsWith('past_key_values.')
  )
}
