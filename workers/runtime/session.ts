import { CancelledError } from '#shared/errors.ts'

import { ModelRunError } from './errors.ts'
import { addressOf, type Pointer } from './library.ts'
import { check, type Native } from './native.ts'
import { RunFrame } from './run-frame.ts'
import type { RunQueue } from './run-queue.ts'
import { readSpecs, type TensorSpec } from './specs.ts'
import { adoptTensor, type Tensor } from './tensor.ts'

/** Inputs of a run by name; all of the model's inputs must be there. */
export type Feeds = Readonly<Record<string, Tensor>>

/** Wanted outputs by name: a tensor is written in place, null is allocated by the runtime. */
export type Fetches = Readonly<Record<string, Tensor | null>>

/** A loaded model. Runs happen on threads of the pool; several may be in flight at once. */
export class ModelSession {
  readonly file: string
  readonly inputs: readonly TensorSpec[]
  readonly outputs: readonly TensorSpec[]

  readonly #native: Native
  readonly #queue: RunQueue
  readonly #handle: Pointer
  readonly #inputNames: NameTable
  readonly #outputNames: NameTable
  readonly #frames: RunFrame[] = []
  readonly #closeListeners: (() => void)[] = []
  #numRunning = 0
  #closing: Promise<void> | undefined
  #onIdle: (() => void) | undefined

  constructor(native: Native, queue: RunQueue, handle: Pointer, file: string) {
    this.#native = native
    this.#queue = queue
    this.#handle = handle
    this.file = file
    this.inputs = readSpecs(native, handle, 'input')
    this.outputs = readSpecs(native, handle, 'output')
    this.#inputNames = makeNameTable(this.inputs)
    this.#outputNames = makeNameTable(this.outputs)
  }

  /**
   * Runs the model and returns the fetched tensors, of which the caller disposes. Throws
   * `ModelRunError` naming the input at fault, and `CancelledError` soon after the signal aborts.
   * The memory of feeds and fetches must be left alone until the promise settles.
   */
  async run<Wanted extends Fetches>(
    feeds: Feeds,
    fetches: Wanted,
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): Promise<{ [Name in keyof Wanted]: Tensor }> {
    const { signal } = options
    if (this.#closing !== undefined)
      throw new ModelRunError('closed', `${this.file}: the session is closed`)
    if (signal?.aborted) throw new CancelledError()
    const frame = this.#frames.pop() ?? this.#makeFrame()
    this.#numRunning += 1
    try {
      fillFeeds(frame, this.#inputNames, feeds)
      fillFetches(frame, this.#outputNames, fetches)
      const turn = this.#queue.enter()
      if (turn !== undefined) await turn
      try {
        await this.#runFrame(frame, signal)
      } finally {
        this.#queue.leave()
      }
      return this.#collect(frame, fetches)
    } finally {
      this.#putBack(frame)
      this.#numRunning -= 1
      if (this.#numRunning === 0) this.#onIdle?.()
    }
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
    this.#native.library.releaseSession(this.#handle)
    for (const listener of this.#closeListeners) listener()
  }

  #makeFrame(): RunFrame {
    return new RunFrame(this.#native.library, this.inputs.length, this.outputs.length)
  }

  #putBack(frame: RunFrame): void {
    frame.forget()
    // A frame whose options were told to terminate would stop its next run as well.
    if (frame.isTerminated) frame.release(this.#native.library)
    else this.#frames.push(frame)
  }

  #runFrame(frame: RunFrame, signal: AbortSignal | undefined): Promise<void> {
    const { library } = this.#native
    if (signal?.aborted) return Promise.reject(new CancelledError())
    return new Promise((resolve, reject) => {
      const onAbort = (): void => frame.terminate(library)
      signal?.addEventListener('abort', onAbort, { once: true })
      const done = (failure: Error | null, status: unknown): void => {
        signal?.removeEventListener('abort', onAbort)
        try {
          if (failure) throw failure
          check(library, status)
          if (signal?.aborted) throw new CancelledError()
          resolve()
        } catch (error) {
          frame.releaseOutputs(library)
          reject(signal?.aborted ? new CancelledError() : this.#translate(error as Error))
        }
      }
      frame.start(library, this.#handle, done)
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
      results[name] = fetches[name] ?? adoptTensor(this.#native, frame.outValues[index]!)
      index += 1
    }
    return results as { [Name in keyof Wanted]: Tensor }
  }
}

interface NamedSpec extends TensorSpec {
  /** Address of the name as a C string. */
  readonly address: Pointer
}

interface NameTable {
  readonly byName: ReadonlyMap<string, NamedSpec>
  /** The memory that the addresses point into. */
  readonly bytes: Uint8Array
}

function makeNameTable(specs: readonly TensorSpec[]): NameTable {
  const encoded = specs.map((spec) => Buffer.from(`${spec.name}\0`))
  const bytes = new Uint8Array(encoded.reduce((sum, name) => sum + name.length, 0) + 1)
  const base = addressOf(bytes)
  const byName = new Map<string, NamedSpec>()
  let offset = 0
  for (const [index, spec] of specs.entries()) {
    bytes.set(encoded[index]!, offset)
    byName.set(spec.name, { ...spec, address: base + BigInt(offset) })
    offset += encoded[index]!.length
  }
  return { byName, bytes }
}

function fillFeeds(frame: RunFrame, names: NameTable, feeds: Feeds): void {
  let count = 0
  for (const name in feeds) {
    const spec = names.byName.get(name)
    if (spec === undefined) {
      throw new ModelRunError('unknownInput', `the model has no input ${name}`, name)
    }
    const tensor = feeds[name]!
    checkAgainst(spec, tensor)
    frame.setInput(count, spec.address, tensor)
    count += 1
  }
  frame.inCount = count
  if (count === names.byName.size) return
  for (const name of names.byName.keys()) {
    if (!(name in feeds)) {
      throw new ModelRunError('missingInput', `the input ${name} is missing`, name)
    }
  }
}

function fillFetches(frame: RunFrame, names: NameTable, fetches: Fetches): void {
  let count = 0
  for (const name in fetches) {
    const spec = names.byName.get(name)
    if (spec === undefined) {
      throw new ModelRunError('unknownOutput', `the model has no output ${name}`, name)
    }
    const tensor = fetches[name] ?? null
    if (tensor) checkAgainst(spec, tensor)
    frame.setOutput(count, spec.address, tensor)
    count += 1
  }
  frame.outCount = count
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
