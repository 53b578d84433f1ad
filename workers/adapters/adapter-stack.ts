import { defined } from '#shared/json.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import { ADAPTER_INPUTS, type AdapterTarget } from './adapter-graph.ts'
import type { FittedAdapter } from './fit-adapter.ts'

/** The adapter of each row of a run; undefined for rows of the base model. */
export type RowAdapters = readonly (FittedAdapter | undefined)[]

/** The inputs of a run over rows of different adapters. */
export interface AdapterFeeds {
  /** Low-rank matrices by input. The object stays the same until a matrix changes. */
  readonly weights: Readonly<Record<string, Tensor>>
  /** The grouping of the rows; the caller disposes of it. */
  readonly indices: Readonly<Record<string, Tensor>>
}

/** Positions of a new stack: the base model and a few adapters. */
const CAPACITY_MIN = 4
/**
 * Ranges whose tensors are kept, because prompts and decode steps alternate and each uses another
 * range.
 */
const VIEWS_MAX = 32

/**
 * Up to this many rows of an adapter are multiplied one by one, which avoids copying the matrices
 * into another layout. From four rows on, one product is as fast (docs/performance.md).
 */
const SINGLE_ROWS_MAX = 2

/** Low-rank matrices of one module: [capacity, in, rank] and [capacity, rank, out]. */
interface Buffers {
  readonly target: AdapterTarget
  readonly a: Float32Array
  readonly b: Float32Array
}

/**
 * The matrices of the adapters in use, one position for each, contiguous in memory. A run takes the
 * range of positions that spans its adapters; unused ones inside it compute results that are not
 * read. Position 0 holds zeros: the base model.
 */
export class AdapterStack {
  readonly #runtime: Runtime
  readonly #targets: readonly AdapterTarget[]
  #buffers: readonly Buffers[] = []
  #positions: (FittedAdapter | undefined)[] = []
  #rank = 0
  readonly #views = new Map<string, Record<string, Tensor>>()

  constructor(runtime: Runtime, targets: readonly AdapterTarget[]) {
    this.#runtime = runtime
    this.#targets = targets
  }

  /** Places the adapters of the rows. No run may be in flight. */
  arrange(rows: RowAdapters): AdapterFeeds {
    const used = new Set(rows.filter((adapter) => adapter !== undefined))
    this.#makeRoom(used)
    for (const adapter of used) {
      if (!this.#positions.includes(adapter)) this.#place(adapter, this.#findFree(used))
    }
    this.#compact(used, rows.includes(undefined))
    const taken = [...used].map((adapter) => this.#positions.indexOf(adapter))
    const first = rows.includes(undefined) ? 0 : Math.min(...taken)
    const end = Math.max(...taken) + 1
    return { weights: this.#viewOf(first, end), indices: this.#layRows(rows, first, end) }
  }

  close(): void {
    this.#discardViews()
    this.#buffers = []
    this.#positions = []
  }

  /** Allocates new buffers if there are too few positions or an adapter has a larger rank. */
  #makeRoom(used: ReadonlySet<FittedAdapter>): void {
    const rank = Math.max(...[...used].map((adapter) => adapter.rank))
    if (used.size < this.#positions.length && rank <= this.#rank) return
    let capacity = Math.max(this.#positions.length, CAPACITY_MIN)
    while (capacity <= used.size) capacity *= 2
    this.#discardViews()
    this.#rank = rank
    this.#positions = Array.from({ length: capacity }, () => undefined)
    this.#buffers = this.#targets.map((target) => ({
      target,
      a: new Float32Array(capacity * target.inSize * rank),
      b: new Float32Array(capacity * rank * target.outSize),
    }))
  }

  /** The first position that no row uses. */
  #findFree(used: ReadonlySet<FittedAdapter>): number {
    return this.#positions.findIndex((adapter, position) => {
      return position > 0 && (adapter === undefined || !used.has(adapter))
    })
  }

  #place(adapter: FittedAdapter, position: number): void {
    this.#discardViews()
    this.#positions[position] = adapter
    const stackRank = this.#rank
    for (const { target, a, b } of this.#buffers) {
      const { inSize, outSize } = target
      const ofA = a.subarray(position * inSize * stackRank, (position + 1) * inSize * stackRank)
      const ofB = b.subarray(position * stackRank * outSize, (position + 1) * stackRank * outSize)
      const layer = adapter.layers.get(target.path)
      if (layer === undefined || layer.rank < stackRank) {
        ofA.fill(0)
        ofB.fill(0)
      }
      if (layer === undefined) continue
      ofB.set(layer.b)
      if (layer.rank === stackRank) ofA.set(layer.a)
      else
        for (let row = 0; row < inSize; row += 1) {
          const from = row * layer.rank
          ofA.set(layer.a.subarray(from, from + layer.rank), row * stackRank)
        }
    }
  }

  /** Moves the last adapter of a run into an unused position if most of its range is unused. */
  #compact(used: ReadonlySet<FittedAdapter>, hasBase: boolean): void {
    const isUsed = (adapter: FittedAdapter | undefined): boolean =>
      adapter !== undefined && used.has(adapter)
    const first = hasBase ? 0 : this.#positions.findIndex(isUsed)
    const last = this.#positions.findLastIndex(isUsed)
    if (last - first < 2 * used.size) return
    const gap = this.#positions.findIndex((adapter, at) => at > first && !isUsed(adapter))
    const [moved, displaced] = [defined(this.#positions[last]), this.#positions[gap]]
    this.#place(moved, gap)
    this.#positions[last] = undefined
    if (displaced !== undefined) this.#place(displaced, last)
  }

  /**
   * Every group is padded to the rows of the largest; all rows of the base model share one
   * position.
   */
  #layRows(adapters: RowAdapters, first: number, end: number): Record<string, Tensor> {
    const sizes = new Int32Array(end - first)
    const places = adapters.map((adapter) => {
      const group = adapter === undefined ? 0 : this.#positions.indexOf(adapter) - first
      const place = adapter === undefined ? 0 : defined(sizes[group])
      sizes[group] = place + 1
      return { group, place }
    })
    const width = Math.max(...sizes)
    const products = width > SINGLE_ROWS_MAX ? 1 : width
    const order = new BigInt64Array(sizes.length * width)
    const rows = BigInt64Array.from(places, ({ group, place }, row) => {
      const at = group * width + place
      order[at] = BigInt(row)
      return BigInt(at)
    })
    const tensor = (values: BigInt64Array): Tensor =>
      this.#runtime.tensor('int64', values, [values.length])
    return {
      [ADAPTER_INPUTS.order]: tensor(order),
      [ADAPTER_INPUTS.rows]: tensor(rows),
      [ADAPTER_INPUTS.layout]: tensor(BigInt64Array.of(BigInt(sizes.length), BigInt(products))),
    }
  }

  #viewOf(first: number, end: number): Record<string, Tensor> {
    const key = `${first}-${end}`
    const known = this.#views.get(key)
    if (known !== undefined) return known
    if (this.#views.size >= VIEWS_MAX) this.#discardViews()
    const count = end - first
    const rank = this.#rank
    const weights: Record<string, Tensor> = {}
    for (const { target, a, b } of this.#buffers) {
      const { inSize, outSize } = target
      const [sizeOfA, sizeOfB] = [inSize * rank, rank * outSize]
      const ofA = a.subarray(first * sizeOfA, end * sizeOfA)
      const ofB = b.subarray(first * sizeOfB, end * sizeOfB)
      weights[target.a] = this.#runtime.tensor('float32', ofA, [count, 1, inSize, rank])
      weights[target.b] = this.#runtime.tensor('float32', ofB, [count, 1, rank, outSize])
    }
    this.#views.set(key, weights)
    return weights
  }

  #discardViews(): void {
    for (const weights of this.#views.values()) {
      for (const tensor of Object.values(weights)) tensor.dispose()
    }
    this.#views.clear()
  }
}
