/** The typed arrays that hold tensor elements. */
export type TensorData =
  | Float32Array
  | Float64Array
  | Float16Array
  | BigInt64Array
  | BigUint64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array

interface ElementRow {
  /** Number of the type in ONNX. */
  readonly onnxType: number
  readonly bytes: number
  readonly view: (buffer: ArrayBuffer, byteOffset: number, length: number) => TensorData
}

/** Element types that a tensor may have; `bool` is one byte, 0 or 1. */
export const ELEMENT_TYPES = {
  float32: { onnxType: 1, bytes: 4, view: (b, o, n) => new Float32Array(b, o, n) },
  uint8: { onnxType: 2, bytes: 1, view: (b, o, n) => new Uint8Array(b, o, n) },
  int8: { onnxType: 3, bytes: 1, view: (b, o, n) => new Int8Array(b, o, n) },
  uint16: { onnxType: 4, bytes: 2, view: (b, o, n) => new Uint16Array(b, o, n) },
  int16: { onnxType: 5, bytes: 2, view: (b, o, n) => new Int16Array(b, o, n) },
  int32: { onnxType: 6, bytes: 4, view: (b, o, n) => new Int32Array(b, o, n) },
  int64: { onnxType: 7, bytes: 8, view: (b, o, n) => new BigInt64Array(b, o, n) },
  bool: { onnxType: 9, bytes: 1, view: (b, o, n) => new Uint8Array(b, o, n) },
  float16: { onnxType: 10, bytes: 2, view: (b, o, n) => new Float16Array(b, o, n) },
  float64: { onnxType: 11, bytes: 8, view: (b, o, n) => new Float64Array(b, o, n) },
  uint32: { onnxType: 12, bytes: 4, view: (b, o, n) => new Uint32Array(b, o, n) },
  uint64: { onnxType: 13, bytes: 8, view: (b, o, n) => new BigUint64Array(b, o, n) },
} as const satisfies Record<string, ElementRow>

/** The data type of a tensor's elements. */
export type ElementType = keyof typeof ELEMENT_TYPES

const TYPES_BY_NUMBER = new Map<number, ElementType>(
  Object.entries(ELEMENT_TYPES).map(([type, row]) => [row.onnxType, type as ElementType]),
)

/**
 * The element type of an ONNX type number, or undefined for types without a plain memory layout.
 */
export function findElementType(onnxType: number): ElementType | undefined {
  return TYPES_BY_NUMBER.get(onnxType)
}

/** Zeroed memory for elements; large blocks use no physical memory until they are written. */
export function allocateElements(type: ElementType, length: number): TensorData {
  const { bytes, view } = ELEMENT_TYPES[type]
  return view(new ArrayBuffer(length * bytes), 0, length)
}

/** Number of elements of a shape. */
export function countElements(dims: readonly number[]): number {
  return dims.reduce((product, dim) => product * dim, 1)
}
