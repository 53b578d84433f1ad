import { defined } from '#shared/json.ts'
import type { CachedRow, GrowingCache, GrowingMemory } from '#workers/engine/growing-cache.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import type { DeviceCache } from './device-cache.ts'

/** Growing caches in device memory: a run reads the old cache and writes the new one there. */
export class DeviceGrowingMemory implements GrowingMemory {
  readonly #device: DeviceCache

  constructor(device: DeviceCache) {
    this.#device = device
  }

  allocate(rows: number, length: number): Tensor[] {
    return this.#device.allocate(rows, length)
  }

  async pack(sources: readonly CachedRow[], lengths: readonly number[]): Promise<GrowingCache> {
    const length = Math.max(...lengths)
    const tensors = this.#device.allocate(sources.length, length)
    try {
      for (const [index, { cache, row, offset }] of sources.entries()) {
        const held = defined(lengths[index])
        const piece = { row, from: offset, to: offset + held, before: length - held, after: 0 }
        await this.#device.copyToRow(cache.tensors, piece, { tensors, row: index })
      }
    } catch (error) {
      for (const tensor of tensors) tensor.dispose()
      throw error
    }
    return { tensors, rows: sources.length, length, isPacked: false }
  }
}
