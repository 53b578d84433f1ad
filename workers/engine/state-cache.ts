import { defined } from '#shared/json.ts'
import { releasePages } from '#workers/runtime/release-pages.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements, countElements } from '#workers/tensor/element-type.ts'

import type { StatePair } from './decoder-graph.ts'
import type { StepTokens } from './step-inputs.ts'

type StateData = Float32Array | Float16Array

/** The states that a run reads and those that it returns, by input and output names. */
interface LaidStates {
  readonly inputs: Readonly<Record<string, Tensor>>
  readonly outputs: Readonly<Record<string, Tensor>>
}

/**
 * The states of all slots, in the memory of this process. A run reads those of its rows and returns
 * new ones, which replace them completely, because a state belongs to one length of a text.
 */
export class StateCache {
  readonly #runtime: Runtime
  readonly #pairs: readonly StatePair[]
  /** One buffer of all slots per pair. */
  readonly #buffers: readonly StateData[]
  /**
   * The states that runs return, and those that they read if their rows are not consecutive slots.
   */
  readonly #returned: StateData[] = []
  readonly #gathered: StateData[] = []
  readonly #slots: number

  constructor(runtime: Runtime, pairs: readonly StatePair[], slots: number) {
    this.#runtime = runtime
    this.#pairs = pairs
    this.#slots = slots
    this.#buffers = pairs.map((pair) => makeRows(pair, slots))
  }

  /**
   * The states of a run's rows: zeros at the beginning of a text, any values in unused rows.
   * Consecutive slots are read in place. The caller disposes of the tensors before the next run.
   */
  lay(rows: StepTokens['rows']): LaidStates {
    for (const { sequence } of rows) if (sequence?.numComputed === 0) this.#clear(sequence.slot)
    const first = this.#firstSlot(rows)
    const inputs: Record<string, Tensor> = {}
    const outputs: Record<string, Tensor> = {}
    for (const [index, pair] of this.#pairs.entries()) {
      const size = sizeOf(pair)
      const dims = [rows.length, ...pair.dims]
      const read =
        first === undefined
          ? this.#gather(rows, index)
          : defined(this.#buffers[index]).subarray(first * size, (first + rows.length) * size)
      const returned = takeRows(this.#returned, index, pair, rows.length)
      inputs[pair.past] = this.#runtime.tensor(pair.type, read, dims)
      outputs[pair.present] = this.#runtime.tensor(pair.type, returned, dims)
    }
    return { inputs, outputs }
  }

  /** Keeps the states that a run returned; unused rows keep theirs. */
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

  /** Releases the memory of a slot's states. */
  release(slot: number): void {
    for (const [index, pair] of this.#pairs.entries()) {
      const size = sizeOf(pair)
      releasePages(defined(this.#buffers[index]).subarray(slot * size, (slot + 1) * size))
    }
  }

  /** The slot of the first row, if the others follow it. */
  #firstSlot(rows: StepTokens['rows']): number | undefined {
    const read = rows.flatMap(({ sequence }, row) => (sequence ? [sequence.slot - row] : []))
    const [first] = read
    const isInside = first !== undefined && first >= 0 && first + rows.length <= this.#slots
    return isInside && read.every((slot) => slot === first) ? first : undefined
  }

  #gather(rows: StepTokens['rows'], index: number): StateData {
    const pair = defined(this.#pairs[index])
    const size = sizeOf(pair)
    const data = takeRows(this.#gathered, index, pair, rows.length)
    for (const [row, { sequence }] of rows.entries()) {
      if (sequence === undefined) continue
      const from = sequence.slot * size
      data.set(defined(this.#buffers[index]).subarray(from, from + size) as never, row * size)
    }
    return data
  }

  #clear(slot: number): void {
    for (const [index, pair] of this.#pairs.entries()) {
      const size = sizeOf(pair)
      defined(this.#buffers[index]).fill(0, slot * size, (slot + 1) * size)
    }
  }
}

/** Releases the tensors of a run. */
export function disposeStates({ inputs, outputs }: LaidStates): void {
  for (const tensor of [...Object.values(inputs), ...Object.values(outputs)]) tensor.dispose()
}

/** Rows of a reused buffer, which grows to the most rows so far. */
function takeRows(kept: StateData[], index: number, pair: StatePair, rows: number): StateData {
  const count = rows * sizeOf(pair)
  const last = kept[index]
  const buffer = last && last.length >= count ? last : makeRows(pair, rows)
  kept[index] = buffer
  return buffer.subarray(0, count)
}

function makeRows(pair: StatePair, rows: number): StateData {
  return allocateElements(pair.type, rows * sizeOf(pair)) as StateData
}

function sizeOf({ dims }: StatePair): number {
  return countElements(dims)
}
