import { defined } from '#shared/json.ts'
import { type ElementType, findElementType } from '#workers/tensor/element-type.ts'

import { ModelRunError } from './errors.ts'
import {
  addressOf,
  callForNumber,
  callForPointer,
  check,
  type Native,
  type Pointer,
  readPointers,
  readString,
} from './native.ts'
import { readShape, type Tensor } from './tensor.ts'

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

/** An input or output with the address of its name as a C string. */
interface NamedSpec extends TensorSpec {
  readonly address: Pointer
}

/** A session's inputs or outputs by name. */
export class NameTable {
  readonly #byName = new Map<string, NamedSpec>()
  /** The memory that the addresses point into. */
  readonly #bytes: Uint8Array
  readonly #side: 'input' | 'output'

  constructor(side: 'input' | 'output', specs: readonly TensorSpec[]) {
    this.#side = side
    const encoded = specs.map((spec) => Buffer.from(`${spec.name}\0`))
    this.#bytes = new Uint8Array(encoded.reduce((sum, name) => sum + name.length, 0) + 1)
    const base = addressOf(this.#bytes)
    let offset = 0
    for (const [index, spec] of specs.entries()) {
      this.#bytes.set(defined(encoded[index]), offset)
      this.#byName.set(spec.name, { ...spec, address: base + BigInt(offset) })
      offset += defined(encoded[index]).length
    }
  }

  get size(): number {
    return this.#byName.size
  }

  names(): Iterable<string> {
    return this.#byName.keys()
  }

  /** Looks up a name and checks it against its tensor; throws `ModelRunError`. */
  fit(name: string, tensor: Tensor | null): NamedSpec {
    const spec = this.#byName.get(name)
    if (spec === undefined) {
      const problem = this.#side === 'input' ? 'unknownInput' : 'unknownOutput'
      throw new ModelRunError(problem, `the model has no ${this.#side} ${name}`, name)
    }
    if (tensor) checkAgainst(spec, tensor)
    return spec
  }
}

function checkAgainst(spec: TensorSpec, tensor: Tensor): void {
  if (spec.type !== tensor.type) {
    const message = `${spec.name} must be ${spec.type ?? 'no tensor'}, not ${tensor.type}`
    throw new ModelRunError('wrongType', message, spec.name)
  }
  const { dims } = tensor
  let fits = dims.length === spec.dims.length
  for (let axis = 0; fits && axis < dims.length; axis += 1) {
    const wanted = spec.dims[axis]
    fits = typeof wanted !== 'number' || wanted === dims[axis]
  }
  if (fits) return
  const wanted = spec.dims.map((dim) => (dim === '' ? '?' : dim)).join(', ')
  throw new ModelRunError(
    'wrongShape',
    `${spec.name} must have the shape [${wanted}], not [${dims.join(', ')}]`,
    spec.name,
  )
}
