import type { Pointer } from './library.ts'
import type { NameTable } from './name-table.ts'
import { callForPointer, check, type Native } from './native.ts'
import type { Tensor } from './tensor.ts'

/** Starts a native call that ends in `done`; the session queues it. */
export type NativeStart = (done: (failure: Error | null, status: unknown) => void) => void

/** The parts of a session that a binding uses. */
interface BoundSession {
  readonly native: Native
  readonly handle: Pointer
  readonly inputs: NameTable
  readonly outputs: NameTable
  run(start: NativeStart): Promise<void>
  release(binding: Binding): void
}

/**
 * Tensors that stay bound to a session's inputs and outputs across runs (ONNX Runtime's IO
 * binding): a step binds only what has changed. Tensors in the memory of the session's device are
 * used in place; others are copied.
 *
 * A bound tensor must not be disposed before the last run that uses it has ended.
 */
export class Binding {
  readonly #session: BoundSession
  readonly #handle: Pointer
  /** Keeps bound tensors reachable, so that the garbage collector does not free their memory. */
  readonly #held = new Map<string, Tensor>()
  #isReleased = false

  constructor(session: BoundSession) {
    this.#session = session
    this.#handle = callForPointer(session.native.library, 'createIoBinding', session.handle)
  }

  /**
   * Binds an input and replaces its previous tensor. Throws `ModelRunError` that names it when it
   * does not fit.
   */
  setInput(name: string, tensor: Tensor): void {
    const { inputs, native } = this.#session
    const { address } = inputs.fit(name, tensor)
    check(native.library, native.library.bindInput(this.#handle, address, tensor.handle))
    this.#held.set(`input ${name}`, tensor)
  }

  /** Binds the tensor that receives an output. Throws `ModelRunError` like `setInput`. */
  setOutput(name: string, tensor: Tensor): void {
    const { outputs, native } = this.#session
    const { address } = outputs.fit(name, tensor)
    check(native.library, native.library.bindOutput(this.#handle, address, tensor.handle))
    this.#held.set(`output ${name}`, tensor)
  }

  /** Runs the model on the bound tensors. Throws `ModelRunError`. */
  run(): Promise<void> {
    const { native, handle } = this.#session
    return this.#session.run((done) => {
      // Inputs in other memory are copied to the device when they are bound; this waits for the
      // copies.
      check(native.library, native.library.synchronizeBoundInputs(this.#handle))
      native.library.runWithBinding.async(handle, 0n, this.#handle, done)
    })
  }

  /** Releases the tensors; idempotent. */
  release(): void {
    if (this.#isReleased) return
    this.#isReleased = true
    this.#held.clear()
    this.#session.native.library.releaseIoBinding(this.#handle)
    this.#session.release(this)
  }
}
