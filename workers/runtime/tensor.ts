import {
  countElements,
  ELEMENT_TYPES,
  type ElementType,
  findElementType,
  type TensorData,
} from '#workers/tensor/element-type.ts'

import {
  addressOf,
  callForNumber,
  callForPointer,
  check,
  type Native,
  type Pointer,
  viewMemory,
} from './native.ts'

/**
 * A dense row-major tensor. Its memory belongs either to JavaScript (created by `createTensor`;
 * views of one buffer are tensors over subarrays), to ONNX Runtime (an output that a run
 * allocated), or to a device (created by `DeviceMemory`), where its elements cannot be read.
 *
 * `dispose` releases the native side. The data of a runtime-owned tensor must not be used
 * afterwards; JavaScript's memory stays. A tensor must not be disposed while a run uses it.
 */
export class Tensor {
  readonly type: ElementType
  readonly dims: readonly number[]
  #handle: Pointer
  #data: TensorData | 'device' | undefined
  readonly #native: Native

  constructor(
    native: Native,
    handle: Pointer,
    type: ElementType,
    dims: readonly number[],
    data: TensorData | 'device' | undefined,
  ) {
    this.#native = native
    this.#handle = handle
    this.type = type
    this.dims = dims
    this.#data = data
  }

  /** Address of the native value. */
  get handle(): Pointer {
    if (this.#handle === 0n) throw new Error('the tensor has been disposed')
    return this.#handle
  }

  /** The elements themselves, not a copy. */
  get data(): TensorData {
    if (this.#data === 'device') throw new Error('a tensor on a device cannot be read')
    this.#data ??= viewNativeData(this.#native, this.handle, this.type, this.dims)
    return this.#data
  }

  get isDisposed(): boolean {
    return this.#handle === 0n
  }

  /** Releases the native value; idempotent. */
  dispose(): void {
    if (this.#handle === 0n) return
    this.#native.library.releaseValue(this.#handle)
    this.#handle = 0n
    this.#data = undefined
  }
}

/** Wraps existing memory without a copy; a subarray gives a view with an offset. */
export function createTensor(
  native: Native,
  type: ElementType,
  data: TensorData,
  dims: readonly number[],
): Tensor {
  const { bytes, onnxType } = ELEMENT_TYPES[type]
  if (data.length !== countElements(dims) || data.BYTES_PER_ELEMENT !== bytes) {
    throw new RangeError(
      `${data.length} elements of ${data.BYTES_PER_ELEMENT} bytes are not a ${type} tensor [${dims}]`,
    )
  }
  const shape = BigInt64Array.from(dims, BigInt)
  const handle = callForPointer(
    native.library,
    'createTensorWithData',
    native.cpuMemory,
    addressOf(data),
    data.byteLength,
    shape,
    dims.length,
    onnxType,
  )
  return new Tensor(native, handle, type, dims, data)
}

/** Wraps a value that a run allocated and takes ownership of it. */
export function adoptTensor(native: Native, handle: Pointer): Tensor {
  const { library } = native
  const info = callForPointer(library, 'getTensorTypeAndShape', handle)
  try {
    const { onnxType, dims } = readShape(native, info)
    const type = findElementType(onnxType)
    if (type === undefined) throw new Error(`outputs of ONNX type ${onnxType} cannot be read`)
    return new Tensor(native, handle, type, dims, undefined)
  } finally {
    library.releaseTensorTypeAndShapeInfo(info)
  }
}

/** Element type and dimensions (-1 where they vary) of a `OrtTensorTypeAndShapeInfo`. */
export function readShape(native: Native, info: Pointer): { onnxType: number; dims: number[] } {
  const { library } = native
  const rank = callForNumber(library, 'getDimensionsCount', info)
  const dims = new BigInt64Array(new ArrayBuffer(rank * 8))
  if (rank > 0) check(library, library.getDimensions(info, dims, rank))
  return {
    onnxType: callForNumber(library, 'getTensorElementType', info),
    dims: Array.from(dims, Number),
  }
}

function viewNativeData(
  native: Native,
  handle: Pointer,
  type: ElementType,
  dims: readonly number[],
): TensorData {
  const { bytes, view } = ELEMENT_TYPES[type]
  const length = countElements(dims)
  const address = callForPointer(native.library, 'getTensorMutableData', handle)
  return view(viewMemory(address, length * bytes), 0, length)
}
