import { defined } from '#shared/json.ts'

import { addressOf, callForPointer, type Library, type Pointer } from './native.ts'
import type { Tensor } from './tensor.ts'

/**
 * The arguments of one native run, reused so that a step allocates nothing. It also keeps the
 * tensors of the run in flight reachable, so that the garbage collector does not free their memory.
 */
export class RunFrame {
  /** Addresses of output values: those of given tensors, or those that the run allocates. */
  readonly outValues: BigUint64Array
  inCount = 0
  outCount = 0
  readonly #inNames: BigUint64Array
  readonly #inValues: BigUint64Array
  readonly #outNames: BigUint64Array
  readonly #held: (Tensor | null)[] = []
  readonly #options: Pointer
  readonly #addresses: readonly [Pointer, Pointer, Pointer, Pointer]
  #isTerminated = false

  constructor(library: Library, inputsMax: number, outputsMax: number) {
    this.#inNames = pointers(inputsMax)
    this.#inValues = pointers(inputsMax)
    this.#outNames = pointers(outputsMax)
    this.outValues = pointers(outputsMax)
    this.#addresses = [
      addressOf(this.#inNames),
      addressOf(this.#inValues),
      addressOf(this.#outNames),
      addressOf(this.outValues),
    ]
    this.#options = callForPointer(library, 'createRunOptions')
  }

  get isTerminated(): boolean {
    return this.#isTerminated
  }

  setInput(index: number, nameAddress: Pointer, tensor: Tensor): void {
    this.#inNames[index] = nameAddress
    this.#inValues[index] = tensor.handle
    this.#held.push(tensor)
  }

  setOutput(index: number, nameAddress: Pointer, tensor: Tensor | null): void {
    this.#outNames[index] = nameAddress
    this.outValues[index] = tensor === null ? 0n : tensor.handle
    this.#held.push(tensor)
  }

  /** Queues the run on a thread of the pool; `done` is called on the event loop. */
  start(
    library: Library,
    session: Pointer,
    done: (failure: Error | null, status: unknown) => void,
  ): void {
    const [inNames, inValues, outNames, outValues] = this.#addresses
    library.run.async(
      session,
      this.#options,
      inNames,
      inValues,
      this.inCount,
      outNames,
      this.outCount,
      outValues,
      done,
    )
  }

  /** Asks the run in flight to stop at its next operator. */
  terminate(library: Library): void {
    this.#isTerminated = true
    library.runOptionsSetTerminate(this.#options)
  }

  /** Releases the outputs that a failed run had already allocated. */
  releaseOutputs(library: Library): void {
    const given = this.#held.slice(this.inCount)
    for (let index = 0; index < this.outCount; index += 1) {
      const value = defined(this.outValues[index])
      if (given[index] === null && value !== 0n) library.releaseValue(value)
    }
  }

  /** Releases the references to the tensors of the last run. */
  clear(): void {
    this.#held.length = 0
    this.inCount = 0
    this.outCount = 0
  }

  release(library: Library): void {
    library.releaseRunOptions(this.#options)
  }
}

function pointers(count: number): BigUint64Array {
  return new BigUint64Array(new ArrayBuffer(Math.max(count, 1) * 8))
}
