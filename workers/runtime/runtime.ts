import { defined } from '#shared/json.ts'
import { Turns } from '#shared/turns.ts'
import {
  allocateElements,
  countElements,
  type ElementType,
  type TensorData,
} from '#workers/tensor/element-type.ts'

import { ModelLoadError } from './errors.ts'
import { callForPointer, check, type Native, openLibrary, type Pointer } from './native.ts'
import { ModelSession } from './session.ts'
import { createSessionOptions, type SessionOptions } from './session-options.ts'
import { readProviders } from './specs.ts'
import { createTensor, type Tensor } from './tensor.ts'

/** Settings of a runtime. */
interface RuntimeOptions {
  /**
   * Native calls in flight. They run on libuv's pool, which file access, DNS and password hashing
   * share: with fewer calls than threads, none of those waits for a model.
   */
  readonly concurrentRunsMax?: number
}

/** A model in memory instead of in a file. */
export interface ModelBytes {
  /** Its name in error messages. */
  readonly name: string
  readonly bytes: Uint8Array
  /** The folder with the files of its weights. */
  readonly folder?: string
}

const CONCURRENT_RUNS_MAX = 3 // of libuv's four default threads
const LOG_FATAL_ONLY = 4 // errors are returned as statuses and thrown here
const DEVICE_ALLOCATOR = 0
const DEFAULT_MEMORY = 0

/** ONNX Runtime, opened: the only object with process-wide native state. */
export interface Runtime {
  /** Version of the native library. */
  readonly version: string
  /** Execution providers that the library was built with. */
  readonly providers: readonly string[]
  /** Loads a model (a file with its external data) off the event loop. Throws `ModelLoadError`. */
  load(model: string | ModelBytes, options?: SessionOptions): Promise<ModelSession>
  /** A tensor over the given memory, without a copy. */
  tensor(type: ElementType, data: TensorData, dims: readonly number[]): Tensor
  /** A tensor over new zeroed memory. */
  zeros(type: ElementType, dims: readonly number[]): Tensor
  /** Waits for runs in flight, then releases every session and the library's state. */
  close(): Promise<void>
}

/** Opens the native library that onnxruntime-node ships. */
export function openRuntime(options: RuntimeOptions = {}): Runtime {
  const library = openLibrary()
  const native: Native = {
    library,
    env: callForPointer(library, 'createEnv', LOG_FATAL_ONLY, 'millrace'),
    allocator: callForPointer(library, 'getDefaultAllocator'),
    cpuMemory: callForPointer(library, 'createCpuMemoryInfo', DEVICE_ALLOCATOR, DEFAULT_MEMORY),
    prepackedWeights: callForPointer(library, 'createPrepackedWeights'),
  }
  const providers = readProviders(native)
  const turns = new Turns(options.concurrentRunsMax ?? CONCURRENT_RUNS_MAX)
  const sessions = new Set<ModelSession>()
  const loads = new Set<Promise<unknown>>()
  let isClosed = false

  async function load(
    model: string | ModelBytes,
    sessionOptions: SessionOptions = {},
  ): Promise<ModelSession> {
    if (isClosed) throw new ModelLoadError(nameOf(model), 'the runtime is closed')
    const loading = loadOpen(model, sessionOptions)
    loads.add(loading)
    try {
      return await loading
    } finally {
      loads.delete(loading)
    }
  }

  async function loadOpen(
    model: string | ModelBytes,
    sessionOptions: SessionOptions,
  ): Promise<ModelSession> {
    const session = await loadFused(native, turns, providers, model, sessionOptions)
    if (isClosed) {
      await session.close()
      throw new ModelLoadError(nameOf(model), 'the runtime is closed')
    }
    sessions.add(session)
    session.onClose(() => sessions.delete(session))
    return session
  }

  async function close(): Promise<void> {
    if (isClosed) return
    isClosed = true
    const closings = [...sessions].map((session) => session.close())
    await Promise.allSettled([...closings, ...loads])
    library.releasePrepackedWeights(native.prepackedWeights)
    library.releaseMemoryInfo(native.cpuMemory)
    library.releaseEnv(native.env)
  }

  return {
    version: library.version,
    providers,
    load,
    tensor: createTensor.bind(undefined, native),
    zeros: (type, dims) =>
      createTensor(native, type, allocateElements(type, countElements(dims)), dims),
    close,
  }
}

/**
 * ONNX Runtime fuses products of 8-bit floats to those of integers, which it then refuses; without
 * this fusion they run.
 */
async function loadFused(
  ...[native, turns, providers, model, options]: Parameters<typeof loadSession>
): Promise<ModelSession> {
  try {
    return await loadSession(native, turns, providers, model, options)
  } catch (error) {
    if (!(error instanceof ModelLoadError && error.message.includes('tensor(float8'))) throw error
    return loadSession(native, turns, providers, model, { ...options, fusesQuantization: false })
  }
}

async function loadSession(
  native: Native,
  turns: Turns,
  providers: readonly string[],
  model: string | ModelBytes,
  options: SessionOptions,
): Promise<ModelSession> {
  const file = nameOf(model)
  const dataFolder = typeof model === 'string' ? undefined : model.folder
  const nativeOptions = createSessionOptions(native, providers, { file, dataFolder }, options)
  const cell = new BigUint64Array(new ArrayBuffer(8))
  try {
    await turns.run(() => createSession(native, model, nativeOptions, cell))
    const { executionProvider = 'cpu' } = options
    return new ModelSession(native, turns, defined(cell[0]), { file, executionProvider })
  } finally {
    native.library.releaseSessionOptions(nativeOptions)
  }
}

function createSession(
  native: Native,
  model: string | ModelBytes,
  nativeOptions: Pointer,
  cell: BigUint64Array,
): Promise<void> {
  const { library, env, prepackedWeights } = native
  return new Promise((resolve, reject) => {
    const done = (failure: Error | null, status: unknown): void => {
      try {
        if (failure) throw failure
        check(library, status)
        resolve()
      } catch (error) {
        reject(new ModelLoadError(nameOf(model), reasonOf(error as Error)))
      }
    }
    const rest = [nativeOptions, prepackedWeights, cell, done]
    if (typeof model === 'string') {
      library.createSession.async(env, model, ...rest)
    } else {
      library.createSessionFromArray.async(env, model.bytes, model.bytes.length, ...rest)
    }
  })
}

/** Reasons of ONNX Runtime that need an explanation; the first group is a domain. */
const UNKNOWN_OPERATOR = /Fatal error: (?:(\S*):)?(\w+)\(-?\d+\) is not a registered function/
const UNKNOWN_TYPES = /Could not find an implementation for (\w+)\(\d+\)/

function reasonOf({ message }: Error): string {
  const [, domain, unknown] = UNKNOWN_OPERATOR.exec(message) ?? []
  if (unknown !== undefined) {
    const origin = domain ? ` of ${domain}` : ''
    return `the graph needs the operator ${unknown}${origin}, which ONNX Runtime does not have`
  }
  const [, operator] = UNKNOWN_TYPES.exec(message) ?? []
  if (operator === undefined) return message
  return (
    `ONNX Runtime cannot compute ${operator} with the element types of the graph, such as ` +
    'bfloat16 on a processor; use a file in float32 or float16, or with quantized weights'
  )
}

function nameOf(model: string | ModelBytes): string {
  return typeof model === 'string' ? model : model.name
}
