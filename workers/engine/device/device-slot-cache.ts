import type { HeldSlot, SlotCache, SlotCacheOptions } from '#workers/engine/slot-cache.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'

import type { DeviceCache } from './device-cache.ts'

/**
 * A slot cache in device memory. One extra slot is the buffer for swaps. Device memory is allocated
 * at once, because it has no lazy commit.
 */
export class DeviceSlotCache implements SlotCache {
  readonly #device: DeviceCache
  readonly #options: SlotCacheOptions
  readonly #tensors: readonly Tensor[]

  /** Throws `ModelLoadError` when the device has no room for it. */
  constructor(device: DeviceCache, file: string, options: SlotCacheOptions) {
    this.#device = device
    this.#options = options
    try {
      this.#tensors = device.allocate(options.slots + 1, options.contextLength)
    } catch (error) {
      throw new ModelLoadError(file, describeShortage(options, error as Error))
    }
  }

  view(first: number, rows: number): Tensor[] {
    return this.#device.view(this.#tensors, first, rows)
  }

  async copy({ slot, length }: HeldSlot, target: number): Promise<void> {
    await this.#copyRow(this.#tensors, slot, { slot: target, length })
  }

  async swap(a: HeldSlot, b: HeldSlot): Promise<void> {
    const spare = this.#options.slots
    await this.copy(a, spare)
    await this.copy(b, a.slot)
    await this.copy({ slot: spare, length: a.length }, b.slot)
  }

  release(): void {
    // The device has allocated all of it at once, so no slots are added under load.
  }

  makeBatch(rows: number, length: number): Tensor[] {
    return this.#device.allocate(rows, length)
  }

  async takeRow(batch: readonly Tensor[], row: number, target: HeldSlot): Promise<void> {
    await this.#copyRow(batch, row, target)
  }

  close(): void {
    for (const tensor of this.#tensors) tensor.dispose()
  }

  async #copyRow(sources: readonly Tensor[], row: number, target: HeldSlot): Promise<void> {
    const { slot, length } = target
    const after = this.#options.contextLength - length
    const piece = { row, from: 0, to: length, before: 0, after }
    await this.#device.copyToRow(sources, piece, { tensors: this.#tensors, row: slot })
  }
}

function describeShortage(options: SlotCacheOptions, error: Error): string {
  const { pairs, slots, contextLength } = options
  const positionBytes = pairs.reduce(
    (sum, { type, numHeads, headDim }) => sum + numHeads * headDim * ELEMENT_TYPES[type].bytes,
    0,
  )
  const mebibytes = Math.ceil(((slots + 1) * contextLength * positionBytes) / 2 ** 20)
  return (
    `the device has no room for the cache of ${slots} slots and one to exchange them, ${contextLength} tokens ` +
    `each: ${mebibytes} MiB; give the model fewer slots or a lower maxContextTokens (${error.message})`
  )
}
