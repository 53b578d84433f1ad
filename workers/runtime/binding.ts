import type { Pointer } from './library.ts'
import type { NameTable } from './name-table.ts'
import { callForPointer, check, type Native } from './native.ts'
import type { Tensor } from './tensor.ts'

/** Starts a native call that ends in `done`; the session gives it its turn. */
export type NativeStart = (done: (failure: Error | null, status: unknown) => void) => void

/** What a binding needs of its session. */
export interface BoundSession {
  readonly native: Native
  readonly handle: Pointer
  readonly inputs: NameTable
  readonly outputs: NameTable
  run(start: NativeStart): Promise<void>
  forget(binding: Binding): void
}

/**
 * Tensors that stay bound to a session's inputs and outputs from one run to the next (ONNX Runtime's
 * IO binding): a step names only what has changed. Those in the memory of the session's device are
 * used where they lie; others are copied to and fro.
 *
 * A tensor that is still bound must not be disposed before the last run that uses it has ended.
 */
export class Binding {
  readonly #session: BoundSession
  readonly #handle: Pointer
  /** The garbage collector must not take the memory of bound tensors. */
  readonly #held = new Map<string, Tensor>()
  #isReleased = false

  constructor(session: BoundSession) {
    this.#session = session
    this.#handle = callForPointer(session.native.library, 'createIoBinding', session.handle)
  }

  /** Binds an input in place of what it had. Throws `ModelRunError` naming it when it does not fit. */
  setInput(name: string, tensor: Tensor): void {
    const { inputs, native } = this.#session
    const { address } = inputs.fit(name, tensor)
    check(native.library, native.library.bindInput(this.#handle, address, tensor.handle))
    this.#held.set(`input ${name}`, tensor)
  }

  /** Binds the tensor that a run writes an output to. Throws `ModelRunError` like `setInput`. */
  setOutput(name: string, tensor: Tensor): void {
    const { outputs, native } = this.#session
    const { address } = outputs.fit(name, tensor)
    check(native.library, native.library.bindOutput(this.#handle, address, tensor.handle))
    this.#held.set(`output ${name}`, tensor)
  }

  /** Runs the model on what is bound. Throws `ModelRunError`. */
  run(): Promise<void> {
    const { native, handle } = this.#session
    return this.#session.run((done) => {
      // Inputs that lie elsewhere are copied to the device when they are bound; wait for that.
      check(native.library, native.library.synchronizeBoundInputs(this.#handle))
      native.library.runWithBinding.async(handle, 0n, this.#handle, done)
    })
  }

  /** Lets go of the tensors; more than once does no harm. */
  release(): void {
    if (this.#isReleased) return
    this.#isReleased = true
    this.#held.clear()
    this.#session.native.library.releaseIoBinding(this.#handle)
    this.#session.forget(this)
  }
}
