import { defined } from '#shared/json.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements } from '#workers/tensor/element-type.ts'

import type { CachePair } from './decoder-graph.ts'

/** A layer's keys or values of several rows, [rows, heads, length, size], one tensor per pair. */
export interface GrowingCache {
  readonly tensors: readonly Tensor[]
  readonly rows: number
  readonly length: number
  /**
   * Whether the memory is JavaScript's, allocated by `packRows`, rather than the output of a run.
   */
  readonly isPacked: boolean
}

/** The position of a row inside a cache: at `offset`, after the padding. */
export interface CachedRow {
  readonly cache: GrowingCache
  readonly row: number
  readonly offset: number
}

/** The memory of growing caches. */
export interface GrowingMemory {
  /**
   * The tensors that a run writes its cache to, one per pair; null where the run allocates them.
   */
  allocate(rows: number, length: number): readonly (Tensor | null)[]
  /**
   * Copies the first `lengths[i]` positions of each source into one cache, left-padded so that
   * every row's newest position sits in the same column.
   */
  pack(
    sources: readonly CachedRow[],
    lengths: readonly number[],
  ): GrowingCache | Promise<GrowingCache>
}

type CacheData = Float32Array | Float16Array

/** Caches in the memory of this process; the outputs of runs stay with the runtime. */
export function hostGrowingMemory(runtime: Runtime, pairs: readonly CachePair[]): GrowingMemory {
  return {
    allocate: () => pairs.map(() => null),
    pack: (sources, lengths) => packRows(runtime, pairs, sources, lengths),
  }
}

/** A cache of zero positions: the cache input of the first run. */
export function emptyCache(
  runtime: Runtime,
  pairs: readonly CachePair[],
  rows: number,
): GrowingCache {
  const tensors = pairs.map(({ type, numHeads, headDim }) =>
    runtime.zeros(type, [rows, numHeads, 0, headDim]),
  )
  return { tensors, rows, length: 0, isPacked: true }
}

/** Releases the memory. */
export function disposeCache(cache: GrowingCache): void {
  for (const tensor of cache.tensors) {
    const buffer = cache.isPacked && !tensor.isDisposed ? tensor.data.buffer : undefined
    tensor.dispose()
    // Detaching frees the memory now; the garbage collector might take long.
    if (buffer instanceof ArrayBuffer) buffer.transfer(0)
  }
}

function packRows(
  runtime: Runtime,
  pairs: readonly CachePair[],
  sources: readonly CachedRow[],
  lengths: readonly number[],
): GrowingCache {
  const length = Math.max(...lengths)
  const rows = sources.length
  const tensors = pairs.map(({ type, numHeads, headDim }, index) => {
    const data = allocateElements(type, rows * numHeads * length * headDim) as CacheData
    for (const [row, source] of sources.entries()) {
      const held = defined(source.cache.tensors[index]).data as CacheData
      for (let head = 0; head < numHeads; head += 1) {
        const from = (source.row * numHeads + head) * source.cache.length + source.offset
        const to = (row * numHeads + head) * length + length - defined(lengths[row])
        const part = held.subarray(from * headDim, (from + defined(lengths[row])) * headDim)
        data.set(part as never, to * headDim)
      }
    }
    return runtime.tensor(type, data, [rows, numHeads, length, headDim])
  })
  return { tensors, rows, length, isPacked: true }
}
