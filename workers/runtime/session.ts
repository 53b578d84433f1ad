import { CancelledError } from '#shared/errors.ts'
import { defined } from '#shared/json.ts'
import type { Turns } from '#shared/turns.ts'

import { DeviceMemory } from './device-memory.ts'
import { ModelRunError } from './errors.ts'
import type { Pointer } from './native.ts'
import { callForPointer, check, type Native } from './native.ts'
import { RunFrame } from './run-frame.ts'
import type { ExecutionProvider } from './session-options.ts'
import { NameTable, readSpecs, type TensorSpec } from './specs.ts'
import { adoptTensor, type Tensor } from './tensor.ts'

/** Inputs of a run by name; all inputs of the model are required. */
export type Feeds = Readonly<Record<string, Tensor>>

/**
 * Requested outputs by name: a given tensor is written in place, null lets the runtime allocate
 * one.
 */
export type Fetches = Readonly<Record<string, Tensor | null>>

/** A loaded model. Runs happen on threads of the pool; several may be in flight at once. */
export class ModelSession {
  readonly file: string
  readonly inputs: readonly TensorSpec[]
  readonly outputs: readonly TensorSpec[]
  readonly executionProvider: ExecutionProvider

  readonly #native: Native
  readonly #turns: Turns
  readonly #handle: Pointer
  readonly #inputNames: NameTable
  readonly #outputNames: NameTable
  readonly #frames: RunFrame[] = []
  readonly #bindings = new Set<Binding>()
  readonly #closeListeners: (() => void)[] = []
  #numRunning = 0
  #closing: Promise<void> | undefined
  #onIdle: (() => void) | undefined

  constructor(
    native: Native,
    turns: Turns,
    handle: Pointer,
    model: { readonly file: string; readonly executionProvider: ExecutionProvider },
  ) {
    this.#native = native
    this.#turns = turns
    this.#handle = handle
    this.file = model.file
    this.executionProvider = model.executionProvider
    this.inputs = readSpecs(native, handle, 'input')
    this.outputs = readSpecs(native, handle, 'output')
    this.#inputNames = new NameTable('input', this.inputs)
    this.#outputNames = new NameTable('output', this.outputs)
  }

  /**
   * Runs the model and returns the fetched tensors, which the caller disposes. Throws
   * `ModelRunError` that names the input at fault, and `CancelledError` soon after the signal
   * aborts. The memory of feeds and fetches must not be used until the promise settles.
   */
  async run<Wanted extends Fetches>(
    feeds: Feeds,
    fetches: Wanted,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<{ [Name in keyof Wanted]: Tensor }> {
    const { signal } = options
    if (signal?.aborted) throw new CancelledError()
    return await this.#whileOpen(async () => {
      const frame = this.#frames.pop() ?? this.#makeFrame()
      try {
        fillFeeds(frame, this.#inputNames, feeds)
        fillFetches(frame, this.#outputNames, fetches)
        await this.#turns.run(() => this.#runFrame(frame, signal))
        return this.#collect(frame, fetches)
      } finally {
        this.#putBack(frame)
      }
    })
  }

  /** Creates a binding whose tensors stay bound across runs. The binding ends with the session. */
  bind(): Binding {
    const binding = new Binding({
      native: this.#native,
      handle: this.#handle,
      inputs: this.#inputNames,
      outputs: this.#outputNames,
      run: (start) => this.#whileOpen(() => this.#turns.run(() => this.#call(start))),
      release: (released) => this.#bindings.delete(released),
    })
    this.#bindings.add(binding)
    return binding
  }

  /**
   * Memory of the device that the session computes on; the caller releases it before the session.
   */
  openMemory(): DeviceMemory {
    return new DeviceMemory(this.#native, this.#handle, this.executionProvider)
  }

  /** Refuses further runs, waits for those in flight and releases the model. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  /** Calls back once when the session has closed. */
  onClose(listener: () => void): void {
    this.#closeListeners.push(listener)
  }

  async #close(): Promise<void> {
    if (this.#numRunning > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve
      })
    }
    for (const frame of this.#frames) frame.release(this.#native.library)
    this.#frames.length = 0
    for (const binding of this.#bindings) binding.release()
    this.#native.library.releaseSession(this.#handle)
    for (const listener of this.#closeListeners) listener()
  }

  #makeFrame(): RunFrame {
    return new RunFrame(this.#native.library, this.inputs.length, this.outputs.length)
  }

  #putBack(frame: RunFrame): void {
    frame.clear()
    // A frame whose run options were set to terminate would stop its next run as well.
    if (frame.isTerminated) frame.release(this.#native.library)
    else this.#frames.push(frame)
  }

  /** Refuses work on a closed session; closing waits for started work. */
  async #whileOpen<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#closing !== undefined) {
      throw new ModelRunError('closed', `${this.file}: the session is closed`)
    }
    this.#numRunning += 1
    try {
      return await work()
    } finally {
      this.#numRunning -= 1
      if (this.#numRunning === 0) this.#onIdle?.()
    }
  }

  async #runFrame(frame: RunFrame, signal: AbortSignal | undefined): Promise<void> {
    const { library } = this.#native
    if (signal?.aborted) throw new CancelledError()
    const onAbort = (): void => frame.terminate(library)
    signal?.addEventListener('abort', onAbort, { once: true })
    try {
      await this.#call((done) => frame.start(library, this.#handle, done))
      if (signal?.aborted) throw new CancelledError()
    } catch (error) {
      frame.releaseOutputs(library)
      throw signal?.aborted ? new CancelledError() : error
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }

  #call(start: NativeStart): Promise<void> {
    return new Promise((resolve, reject) => {
      start((failure, status) => {
        try {
          if (failure) throw failure
          check(this.#native.library, status)
          resolve()
        } catch (error) {
          reject(this.#translate(error as Error))
        }
      })
    })
  }

  #translate(error: Error): ModelRunError {
    return new ModelRunError('failed', `${this.file}: ${error.message}`)
  }

  #collect<Wanted extends Fetches>(
    frame: RunFrame,
    fetches: Wanted,
  ): { [Name in keyof Wanted]: Tensor } {
    const results: Record<string, Tensor> = {}
    let index = 0
    for (const name in fetches) {
      results[name] = fetches[name] ?? adoptTensor(this.#native, defined(frame.outValues[index]))
      index += 1
    }
    return results as { [Name in keyof Wanted]: Tensor }
  }
}

function fillFeeds(frame: RunFrame, names: NameTable, feeds: Feeds): void {
  let count = 0
  for (const name in feeds) {
    const tensor = defined(feeds[name])
    frame.setInput(count, names.fit(name, tensor).address, tensor)
    count += 1
  }
  frame.inCount = count
  if (count === names.size) return
  for (const name of names.names()) {
    if (!(name in feeds)) {
      throw new ModelRunError('missingInput', `the input ${name} is missing`, name)
    }
  }
}

function fillFetches(frame: RunFrame, names: NameTable, fetches: Fetches): void {
  let count = 0
  for (const name in fetches) {
    const tensor = fetches[name] ?? null
    frame.setOutput(count, names.fit(name, tensor).address, tensor)
    count += 1
  }
  frame.outCount = count
}

/** Starts a native call that ends in `done`; the session queues it. */
type NativeStart = (done: (failure: Error | null, status: unknown) => void) => void

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
