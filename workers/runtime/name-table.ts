import { defined } from '#shared/records.ts'

import { ModelRunError } from './errors.ts'
import { addressOf, type Pointer } from './library.ts'
import type { TensorSpec } from './specs.ts'
import type { Tensor } from './tensor.ts'

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
