import { join } from 'node:path'

import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

const FIXTURES = join(import.meta.dirname, '../../../fixtures')

/** Multiplies a matrix with itself a given number of times. */
export const LOOP_FILE = join(FIXTURES, 'runtime/loop.onnx')

/** A decoder whose cache is written in place. */
export const IN_PLACE_FILE = join(FIXTURES, 'models/llama-in-place/onnx/model.onnx')

/** A decoder that returns its cache with the new positions appended. */
export const GROWING_FILE = join(FIXTURES, 'models/llama/onnx/model.onnx')

/** Names of the two layers' keys and values. */
export const CACHE_PARTS = ['0.key', '0.value', '1.key', '1.value'] as const

/** Inputs for one token after `length` positions of a cache with room for `capacity`. */
export function decoderFeeds(
  runtime: Runtime,
  session: ModelSession,
  { length, capacity }: { length: number; capacity: number },
): Record<string, Tensor> {
  const ones = new BigInt64Array(length + 1).fill(1n)
  const feeds: Record<string, Tensor> = {
    input_ids: runtime.tensor('int64', BigInt64Array.of(5n), [1, 1]),
    attention_mask: runtime.tensor('int64', ones, [1, length + 1]),
  }
  if (session.inputs.some(({ name }) => name === 'position_ids')) {
    feeds.position_ids = runtime.tensor('int64', BigInt64Array.of(BigInt(length)), [1, 1])
  }
  for (const part of CACHE_PARTS) {
    feeds[`past_key_values.${part}`] = runtime.zeros('float32', [1, 2, capacity, 16])
  }
  return feeds
}

/** Inputs for a run of the loop model. */
export function loopFeeds(runtime: Runtime, trips: number, size = 96): Record<string, Tensor> {
  const x = Float32Array.from({ length: size * size }, (_, index) => Math.sin(index))
  return {
    trips: runtime.tensor('int64', BigInt64Array.of(BigInt(trips)), []),
    x: runtime.tensor('float32', x, [size, size]),
  }
}
