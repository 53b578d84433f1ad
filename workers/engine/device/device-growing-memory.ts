import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import type { CachePair } from '../decoder-graph.ts'
import {
  type CachedRow,
  emptyCache,
  type GrowingCache,
  type GrowingMemory,
} from '../growing-cache.ts'

import type { DeviceCache } from './device-cache.ts'

/** Growing caches on the device: a run reads the old one and writes the new one there. */
export class DeviceGrowingMemory implements GrowingMemory {
  readonly #runtime: Runtime
  readonly #device: DeviceCache
  readonly #pairs: readonly CachePair[]

  constructor(runtime: Runtime, device: DeviceCache, pairs: readonly CachePair[]) {
    this.#runtime = runtime
    this.#device = device
    this.#pairs = pairs
  }

  /** Of no bytes, so it may lie anywhere. */
  empty(rows: number): GrowingCache {
    return emptyCache(this.#runtime, this.#pairs, rows)
  }

  allocate(rows: number, length: number): Tensor[] {
    return this.#device.allocate(rows, length)
  }

  async pack(sources: readonly CachedRow[], lengths: readonly number[]): Promise<GrowingCache> {
    const length = Math.max(...lengths)
    const tensors = this.#device.allocate(sources.length, length)
    try {
      for (const [index, { cache, row, offset }] of sources.entries()) {
        const held = lengths[index]!
        const piece = { row, from: offset, to: offset + held, before: length - held, after: 0 }
        const targets = this.#device.view(tensors, index, 1)
        try {
          await this.#device.copy(cache.tensors, piece, targets)
        } finally {
          for (const tensor of targets) tensor.dispose()
        }
      }
    } catch (error) {
      for (const tensor of tensors) tensor.dispose()
      throw error
    }
    return { tensors, rows: sources.length, length, isPacked: false }
  }
}
