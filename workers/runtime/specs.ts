import { defined } from '#shared/records.ts'
import { type ElementType, findElementType } from '#workers/tensor/element-type.ts'

import { type Pointer, readPointers, readString } from './library.ts'
import { callForNumber, callForPointer, check, type Native } from './native.ts'
import { readShape } from './tensor.ts'

/** The declaration of one input or output of a model. */
export interface TensorSpec {
  readonly name: string
  /** Undefined for values other than plain tensors (strings, sequences, maps). */
  readonly type: ElementType | undefined
  /** A number for a fixed size, the symbol (or '') for a variable one. */
  readonly dims: readonly (number | string)[]
}

/** Reads the inputs or outputs of a loaded session, in the model's order. */
export function readSpecs(
  native: Native,
  session: Pointer,
  side: 'input' | 'output',
): TensorSpec[] {
  const { library } = native
  const isInput = side === 'input'
  const count = callForNumber(
    library,
    isInput ? 'sessionGetInputCount' : 'sessionGetOutputCount',
    session,
  )
  return Array.from({ length: count }, (_, index) => {
    const nameAddress = callForPointer(
      library,
      isInput ? 'sessionGetInputName' : 'sessionGetOutputName',
      session,
      index,
      native.allocator,
    )
    const name = readString(nameAddress)
    check(library, library.allocatorFree(native.allocator, nameAddress))
    const typeInfo = callForPointer(
      library,
      isInput ? 'sessionGetInputTypeInfo' : 'sessionGetOutputTypeInfo',
      session,
      index,
    )
    try {
      return { name, ...readTypeInfo(native, typeInfo) }
    } finally {
      library.releaseTypeInfo(typeInfo)
    }
  })
}

function readTypeInfo(native: Native, typeInfo: Pointer): Omit<TensorSpec, 'name'> {
  const { library } = native
  const info = callForPointer(library, 'castTypeInfoToTensorInfo', typeInfo)
  if (info === 0n) return { type: undefined, dims: [] }
  const { onnxType, dims } = readShape(native, info)
  const symbols = new BigUint64Array(new ArrayBuffer(dims.length * 8))
  if (dims.length > 0) check(library, library.getSymbolicDimensions(info, symbols, dims.length))
  return {
    type: findElementType(onnxType),
    dims: dims.map((dim, axis) => (dim >= 0 ? dim : readString(defined(symbols[axis])))),
  }
}

/** Names of the execution providers that the library was built with. */
export function readProviders(native: Pick<Native, 'library'>): string[] {
  const { library } = native
  const names = new BigUint64Array(new ArrayBuffer(8))
  const count = new Int32Array(new ArrayBuffer(4))
  check(library, library.getAvailableProviders(names, count))
  const providers = readPointers(defined(names[0]), defined(count[0])).map(readString)
  check(library, library.releaseAvailableProviders(defined(names[0]), defined(count[0])))
  return providers
}
