import { countElements, ELEMENT_TYPES, type ElementType } from '#workers/tensor/element-type.ts'

import type { Pointer } from './native.ts'
import { callForPointer, type Native } from './native.ts'
import { Tensor } from './tensor.ts'

/** ONNX Runtime's names for the memory of an execution provider's first device. */
const MEMORY_NAMES = { cpu: 'Cpu', cuda: 'Cuda' } as const

const DEVICE_ALLOCATOR = 0
const FIRST_DEVICE = 0
const DEFAULT_MEMORY = 0

/**
 * Memory of the device that a session computes on. Runs use its tensors in place; their elements
 * cannot be read here. Release it after all of its tensors and before the session.
 */
export class DeviceMemory {
  readonly #native: Native
  readonly #info: Pointer
  readonly #allocator: Pointer

  constructor(native: Native, session: Pointer, provider: keyof typeof MEMORY_NAMES) {
    this.#native = native
    const { library } = native
    const place = [MEMORY_NAMES[provider], DEVICE_ALLOCATOR, FIRST_DEVICE, DEFAULT_MEMORY] as const
    this.#info = callForPointer(library, 'createMemoryInfo', ...place)
    try {
      this.#allocator = callForPointer(library, 'createAllocator', session, this.#info)
    } catch (error) {
      library.releaseMemoryInfo(this.#info)
      throw error
    }
  }

  /** A tensor with uninitialized elements. Throws when the device has no room for it. */
  allocate(type: ElementType, dims: readonly number[]): Tensor {
    const shape = BigInt64Array.from(dims, BigInt)
    const { onnxType } = ELEMENT_TYPES[type]
    const { library } = this.#native
    const place = [this.#allocator, shape, dims.length, onnxType] as const
    const handle = callForPointer(library, 'createTensor', ...place)
    return new Tensor(this.#native, handle, type, dims, 'device')
  }

  /** A view of `rows` entries of a tensor's first axis, starting at `first`. */
  view(tensor: Tensor, first: number, rows: number): Tensor {
    const { library } = this.#native
    const { type, dims } = tensor
    const rowBytes = countElements(dims.slice(1)) * ELEMENT_TYPES[type].bytes
    const base = callForPointer(library, 'getTensorMutableData', tensor.handle)
    const viewDims = [rows, ...dims.slice(1)]
    const handle = callForPointer(
      library,
      'createTensorWithData',
      this.#info,
      base + BigInt(first * rowBytes),
      rows * rowBytes,
      BigInt64Array.from(viewDims, BigInt),
      viewDims.length,
      ELEMENT_TYPES[type].onnxType,
    )
    return new Tensor(this.#native, handle, type, viewDims, 'device')
  }

  release(): void {
    this.#native.library.releaseAllocator(this.#allocator)
    this.#native.library.releaseMemoryInfo(this.#info)
  }
}
