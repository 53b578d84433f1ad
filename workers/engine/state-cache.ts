import { defined } from '#shared/json.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements } from '#workers/tensor/element-type.ts'

import type { StatePair } from './decoder-graph.ts'
import type { StepTokens } from './step-inputs.ts'

type StateData = Float32Array | Float16Array

/** The states that a run reads and those that it returns, by the names of inputs and outputs. */
interface LaidStates {
  readonly inputs: Readonly<Record<string, Tensor>>
  readonly outputs: Readonly<Record<string, Tensor>>
}

/**
 * The states of all slots, in the memory of this process. A run reads those of its rows and returns
 * new ones, which replace them whole: a state belongs to one length of a text and to no other.
 */
export class StateCache {
  readonly #runtime: Runtime
  readonly #pairs: readonly StatePair[]
  /** One buffer of all slots per pair. */
  readonly #buffers: readonly StateData[]

  constructor(runtime: Runtime, pairs: readonly StatePair[], slots: number) {
    this.#runtime = runtime
    this.#pairs = pairs
    this.#buffers = pairs.map((pair) => makeRows(pair, slots))
  }

  /**
   * The states of a run's rows: zeros at the beginning of a text and in rows that are not read. The
   * caller disposes of them.
   */
  lay(rows: StepTokens['rows']): LaidStates {
    const inputs: Record<string, Tensor> = {}
    const outputs: Record<string, Tensor> = {}
    for (const [index, pair] of this.#pairs.entries()) {
      const size = sizeOf(pair)
      const data = makeRows(pair, rows.length)
      for (const [row, { sequence }] of rows.entries()) {
        if (sequence === undefined || sequence.numComputed === 0) continue
        const from = sequence.slot * size
        data.set(defined(this.#buffers[index]).subarray(from, from + size) as never, row * size)
      }
      const dims = [rows.length, ...pair.dims]
      inputs[pair.past] = this.#runtime.tensor(pair.type, data, dims)
      outputs[pair.present] = this.#runtime.tensor(pair.type, makeRows(pair, rows.length), dims)
    }
    return { inputs, outputs }
  }

  /** Keeps what a run returned; rows that are not read keep what they had. */
  keep(rows: StepTokens['rows'], { outputs }: LaidStates): void {
    for (const [index, pair] of this.#pairs.entries()) {
      const size = sizeOf(pair)
      const data = defined(outputs[pair.present]).data as StateData
      for (const [row, { sequence }] of rows.entries()) {
        if (sequence === undefined) continue
        const state = data.subarray(row * size, (row + 1) * size)
        defined(this.#buffers[index]).set(state as never, sequence.slot * size)
      }
    }
  }

  swap(a: number, b: number): void {
    for (const [index, pair] of this.#pairs.entries()) {
      const size = sizeOf(pair)
      const buffer = defined(this.#buffers[index])
      const held = buffer.slice(a * size, (a + 1) * size)
      buffer.copyWithin(a * size, b * size, (b + 1) * size)
      buffer.set(held as never, b * size)
    }
  }
}

/** Releases the tensors of a run. */
export function disposeStates({ inputs, outputs }: LaidStates): void {
  for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) tensor.dispose()
}

function makeRows(pair: StatePair, rows: number): StateData {
  return allocateElements(pair.type, rows * sizeOf(pair)) as StateData
}

function sizeOf({ dims }: StatePair): number {
  return dims.reduce((product, dim) => product * dim, 1)
}
