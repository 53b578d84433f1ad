import { defined } from '#shared/json.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import {
  allocateElements,
  type ElementType,
  type TensorData,
} from '#workers/tensor/element-type.ts'

/** The encoder's output for one row: `[positions, width]`, in the decoder's precision. */
export interface EncoderStates {
  readonly data: TensorData
  readonly positions: number
}

/** Joins rows into one tensor, padded on the right, with the mask that marks the padding. */
export function joinStates(
  runtime: Runtime,
  type: ElementType,
  rows: readonly EncoderStates[],
): { readonly states: Tensor; readonly mask: Tensor } {
  const positions = Math.max(...rows.map((row) => row.positions))
  const [first] = rows
  const width = defined(first).data.length / defined(first).positions
  const data = allocateElements(type, rows.length * positions * width) as Float32Array
  const mask = new BigInt64Array(rows.length * positions)
  for (const [index, row] of rows.entries()) {
    data.set(row.data as Float32Array, index * positions * width)
    mask.fill(1n, index * positions, index * positions + row.positions)
  }
  return {
    states: runtime.tensor(type, data, [rows.length, positions, width]),
    mask: runtime.tensor('int64', mask, [rows.length, positions]),
  }
}

/** A copy of some rows of a tensor. */
export function copyRows(runtime: Runtime, tensor: Tensor, rows: readonly number[]): Tensor {
  const [count = 1, ...rest] = tensor.dims
  const size = rest.reduce((product, dim) => product * dim, 1)
  const data = allocateElements(tensor.type, size * rows.length) as Float32Array
  if (count > 0 && size > 0) {
    for (const [index, row] of rows.entries()) {
      data.set(tensor.data.subarray(row * size, (row + 1) * size) as Float32Array, index * size)
    }
  }
  return runtime.tensor(tensor.type, data, [rows.length, ...rest])
}
