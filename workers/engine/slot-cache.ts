import { defined } from '#shared/json.ts'
import { releasePages } from '#workers/runtime/release-pages.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { allocateElements } from '#workers/tensor/element-type.ts'

import type { CachePair } from './decoder-graph.ts'
import type { MemoryRelease } from './slots.ts'

/** A slot, and the number of its positions to keep. */
export interface HeldSlot {
  readonly slot: number
  readonly length: number
}

/**
 * Keys and values of all slots, one buffer [slots, heads, length, size] for each pair of the graph.
 */
export interface SlotCache {
  /**
   * `rows` slots starting at `first`, as tensors over the buffers, one per pair; the caller
   * disposes of them.
   */
  view(first: number, rows: number): Tensor[]
  /** Copies the source's positions to the beginning of another slot. */
  copy(source: HeldSlot, target: number): void | Promise<void>
  swap(a: HeldSlot, b: HeldSlot): void | Promise<void>
  /** Releases the memory of a slot's positions starting at `from`, if possible. */
  release(part: MemoryRelease): void
  /**
   * A separate cache for a batch of prompts, [rows, heads, length, size] for each pair. The caller
   * disposes of it before requesting the next.
   */
  makeBatch(rows: number, length: number): Tensor[]
  /** Copies a row of a batch to the beginning of a slot. */
  takeRow(batch: readonly Tensor[], row: number, target: HeldSlot): void | Promise<void>
  /** Releases the memory; the views must be released before. */
  close(): void
}

/** The shape and type of a cache's buffers. */
export interface SlotCacheOptions {
  readonly pairs: readonly CachePair[]
  readonly slots: number
  readonly contextLength: number
}

type CacheData = Float32Array | Float16Array

/**
 * A cache in the memory of this process; the system commits a position when it is first written.
 */
export class HostSlotCache implements SlotCache {
  readonly #runtime: Runtime
  readonly #options: SlotCacheOptions
  readonly #buffers: readonly CacheData[]
  /** The buffers of prompt batches, as large as the largest batch so far. */
  readonly #batchBuffers: CacheData[] = []

  constructor(runtime: Runtime, options: SlotCacheOptions) {
    const { pairs, slots, contextLength } = options
    this.#runtime = runtime
    this.#options = options
    this.#buffers = pairs.map(
      ({ type, numHeads, headDim }) =>
        allocateElements(type, slots * numHeads * contextLength * headDim) as CacheData,
    )
  }

  view(first: number, rows: number): Tensor[] {
    const { pairs, contextLength } = this.#options
    return pairs.map(({ type, numHeads, headDim }, index) => {
      const stride = numHeads * contextLength * headDim
      const data = defined(this.#buffers[index]).subarray(first * stride, (first + rows) * stride)
      return this.#runtime.tensor(type, data, [rows, numHeads, contextLength, headDim])
    })
  }

  copy(source: HeldSlot, target: number): void {
    this.#forEachHead((buffer, slotStride, headOffset, headDim) => {
      const from = source.slot * slotStride + headOffset
      const to = target * slotStride + headOffset
      buffer.copyWithin(to, from, from + source.length * headDim)
    })
  }

  swap(a: HeldSlot, b: HeldSlot): void {
    this.#forEachHead((buffer, slotStride, headOffset, headDim) => {
      const startA = a.slot * slotStride + headOffset
      const startB = b.slot * slotStride + headOffset
      const heldA = buffer.slice(startA, startA + a.length * headDim)
      buffer.copyWithin(startA, startB, startB + b.length * headDim)
      buffer.set(heldA as never, startB)
    })
  }

  release({ slot, from }: MemoryRelease): void {
    const count = this.#options.contextLength - from
    this.#forEachHead((buffer, slotStride, headOffset, headDim) => {
      const start = slot * slotStride + headOffset + from * headDim
      releasePages(buffer.subarray(start, start + count * headDim))
    })
  }

  makeBatch(rows: number, length: number): Tensor[] {
    return this.#options.pairs.map(({ type, numHeads, headDim }, index) => {
      const count = rows * numHeads * length * headDim
      const kept = this.#batchBuffers[index]
      const buffer =
        kept && kept.length >= count ? kept : (allocateElements(type, count) as CacheData)
      this.#batchBuffers[index] = buffer
      const dims = [rows, numHeads, length, headDim]
      return this.#runtime.tensor(type, buffer.subarray(0, count), dims)
    })
  }

  takeRow(batch: readonly Tensor[], row: number, { slot, length }: HeldSlot): void {
    const { pairs, contextLength } = this.#options
    for (const [index, { numHeads, headDim }] of pairs.entries()) {
      const { data, dims } = defined(batch[index])
      for (let head = 0; head < numHeads; head += 1) {
        const from = (row * numHeads + head) * defined(dims[2]) * headDim
        const part = (data as CacheData).subarray(from, from + length * headDim)
        const to = (slot * numHeads + head) * contextLength * headDim
        defined(this.#buffers[index]).set(part as never, to)
      }
    }
  }

  close(): void {}

  #forEachHead(
    visit: (buffer: CacheData, slotStride: number, headOffset: number, headDim: number) => void,
  ): void {
    const { pairs, contextLength } = this.#options
    for (const [index, { numHeads, headDim }] of pairs.entries()) {
      const headStride = contextLength * headDim
      for (let head = 0; head < numHeads; head += 1) {
        visit(defined(this.#buffers[index]), numHeads * headStride, head * headStride, headDim)
      }
    }
  }
}
