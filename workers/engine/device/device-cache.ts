import { defined } from '#shared/json.ts'
import type { CachePair } from '#workers/engine/decoder-graph.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import type { DeviceMemory } from '#workers/runtime/device-memory.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import { makeCutGraph } from './cut-graph.ts'

/** A part of a cache: positions `from` to `to` of one row, and the padding around the copy. */
interface CachePiece {
  readonly row: number
  readonly from: number
  readonly to: number
  readonly before: number
  readonly after: number
}

/**
 * Cache tensors in the memory of the device that a decoder's session computes on. The device copies
 * their parts by running a graph of slices.
 */
export class DeviceCache {
  readonly #runtime: Runtime
  readonly #pairs: readonly CachePair[]
  readonly #memory: DeviceMemory
  readonly #cutter: ModelSession

  private constructor(
    runtime: Runtime,
    pairs: readonly CachePair[],
    opened: { readonly memory: DeviceMemory; readonly cutter: ModelSession },
  ) {
    this.#runtime = runtime
    this.#pairs = pairs
    this.#memory = opened.memory
    this.#cutter = opened.cutter
  }

  /** Creates the cache of a session, to be closed after the cache. Throws `ModelLoadError`. */
  static async open(
    runtime: Runtime,
    session: ModelSession,
    pairs: readonly CachePair[],
  ): Promise<DeviceCache> {
    const { executionProvider, file } = session
    const graph = makeCutGraph(pairs.map(({ type }) => type))
    const model = { name: `${file} (copies of its cache)`, bytes: graph }
    const cutter = await runtime.load(model, { executionProvider })
    return await closeOnFailure(cutter, () => {
      return new DeviceCache(runtime, pairs, { memory: session.openMemory(), cutter })
    })
  }

  /**
   * Allocates rows and positions, one uninitialized tensor per pair. Throws when there is no room.
   */
  allocate(rows: number, length: number): Tensor[] {
    const tensors: Tensor[] = []
    try {
      for (const { type, numHeads, headDim } of this.#pairs) {
        tensors.push(this.#memory.allocate(type, [rows, numHeads, length, headDim]))
      }
    } catch (error) {
      for (const tensor of tensors) tensor.dispose()
      throw error
    }
    return tensors
  }

  /** Views of rows of the tensors. */
  view(tensors: readonly Tensor[], first: number, rows: number): Tensor[] {
    return tensors.map((tensor) => this.#memory.view(tensor, first, rows))
  }

  /** Fills the targets, of one row each, with the part of the sources and zeros around it. */
  async copy(
    sources: readonly Tensor[],
    piece: CachePiece,
    targets: readonly Tensor[],
  ): Promise<void> {
    const { row, from, to, before, after } = piece
    const feeds: Record<string, Tensor> = {
      starts: this.#integers(row, from),
      ends: this.#integers(row + 1, to),
      axes: this.#integers(0, 2),
      pads: this.#integers(0, 0, before, 0, 0, 0, after, 0),
    }
    const integers = Object.values(feeds)
    const fetches: Record<string, Tensor> = {}
    for (const [index, target] of targets.entries()) {
      feeds[`source.${index}`] = defined(sources[index])
      fetches[`target.${index}`] = target
    }
    try {
      await this.#cutter.run(feeds, fetches)
    } finally {
      for (const tensor of integers) tensor.dispose()
    }
  }

  /** Fills one row of the targets like `copy`. */
  async copyToRow(
    sources: readonly Tensor[],
    piece: CachePiece,
    target: { readonly tensors: readonly Tensor[]; readonly row: number },
  ): Promise<void> {
    const targets = this.view(target.tensors, target.row, 1)
    try {
      await this.copy(sources, piece, targets)
    } finally {
      for (const tensor of targets) tensor.dispose()
    }
  }

  /** Releases the memory; all of its tensors must be released before. */
  async close(): Promise<void> {
    await this.#cutter.close()
    this.#memory.release()
  }

  #integers(...values: number[]): Tensor {
    return this.#runtime.tensor('int64', BigInt64Array.from(values, BigInt), [values.length])
  }
}
