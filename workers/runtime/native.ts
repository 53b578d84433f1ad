import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

import koffi from 'koffi'

import { defined } from '#shared/json.ts'

/** The library with the process-wide objects that its calls need. */
export interface Native {
  readonly library: Library
  readonly env: Pointer
  readonly allocator: Pointer
  readonly cpuMemory: Pointer
  readonly prepackedWeights: Pointer
}

/** A failure reported by the library. */
class NativeError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'NativeError'
  }
}

/** Converts a returned status to an exception and releases it. */
export function check(library: Library, status: unknown): void {
  if (status === null || status === 0n) return
  const message = library.getErrorMessage(status as Pointer) as string
  library.releaseStatus(status as Pointer)
  throw new NativeError(message)
}

/** Calls a function whose last argument is `T **out` and returns what it wrote. */
export function callForPointer(
  library: Library,
  name: keyof Omit<Library, 'version' | 'handle'>,
  ...args: NativeArgument[]
): Pointer {
  const cell = new BigUint64Array(new ArrayBuffer(8))
  check(library, library[name](...args, cell))
  return defined(cell[0])
}

/** The same for a result of type `size_t` or `enum`. */
export function callForNumber(
  library: Library,
  name: keyof Omit<Library, 'version' | 'handle'>,
  ...args: NativeArgument[]
): number {
  return Number(callForPointer(library, name, ...args))
}

/** File name of ONNX Runtime's shared library per platform, inside the package that ships it. */
const LIBRARY_FILES: Readonly<Record<string, string>> = {
  linux: 'libonnxruntime.so.1',
  darwin: 'libonnxruntime.1.dylib',
  win32: 'onnxruntime.dll',
}

/** The version of the C API that we call; every newer library still offers it. */
const API_VERSION = 20

/**
 * The functions of `struct OrtApi` that we call: index in the struct (fixed once released), result
 * and arguments, one letter each (see `C_TYPES`). Pointers cross as integers or as the memory of a
 * typed array, so that a call converts nothing.
 */
const FUNCTIONS = {
  getErrorMessage: [2, 's', 'p'],
  createEnv: [3, 'p', 'isp'],
  run: [9, 'p', 'ppppnpnp'],
  createSessionOptions: [10, 'p', 'p'],
  disableMemPattern: [17, 'p', 'p'],
  setGraphOptimizationLevel: [23, 'p', 'pi'],
  setIntraOpNumThreads: [24, 'p', 'pi'],
  setInterOpNumThreads: [25, 'p', 'pi'],
  sessionGetInputCount: [30, 'p', 'pp'],
  sessionGetOutputCount: [31, 'p', 'pp'],
  sessionGetInputTypeInfo: [33, 'p', 'pnp'],
  sessionGetOutputTypeInfo: [34, 'p', 'pnp'],
  sessionGetInputName: [36, 'p', 'pnpp'],
  sessionGetOutputName: [37, 'p', 'pnpp'],
  createRunOptions: [39, 'p', 'p'],
  runOptionsSetTerminate: [46, 'p', 'p'],
  createTensor: [48, 'p', 'ppnip'],
  createTensorWithData: [49, 'p', 'ppnpnip'],
  getTensorMutableData: [51, 'p', 'pp'],
  castTypeInfoToTensorInfo: [55, 'p', 'pp'],
  getTensorElementType: [60, 'p', 'pp'],
  getDimensionsCount: [61, 'p', 'pp'],
  getDimensions: [62, 'p', 'ppn'],
  getSymbolicDimensions: [63, 'p', 'ppn'],
  getTensorTypeAndShape: [65, 'p', 'pp'],
  createMemoryInfo: [68, 'p', 'siiip'],
  createCpuMemoryInfo: [69, 'p', 'iip'],
  allocatorFree: [76, 'p', 'pp'],
  getDefaultAllocator: [78, 'p', 'p'],
  releaseEnv: [92, 'v', 'p'],
  releaseStatus: [93, 'v', 'p'],
  releaseMemoryInfo: [94, 'v', 'p'],
  releaseSession: [95, 'v', 'p'],
  releaseValue: [96, 'v', 'p'],
  releaseRunOptions: [97, 'v', 'p'],
  releaseTypeInfo: [98, 'v', 'p'],
  releaseTensorTypeAndShapeInfo: [99, 'v', 'p'],
  releaseSessionOptions: [100, 'v', 'p'],
  getAvailableProviders: [125, 'p', 'pp'],
  releaseAvailableProviders: [126, 'p', 'pi'],
  addSessionConfigEntry: [130, 'p', 'pss'],
  createAllocator: [131, 'p', 'ppp'],
  releaseAllocator: [132, 'v', 'p'],
  runWithBinding: [133, 'p', 'ppp'],
  createIoBinding: [134, 'p', 'pp'],
  releaseIoBinding: [135, 'v', 'p'],
  bindInput: [136, 'p', 'ppp'],
  bindOutput: [137, 'p', 'ppp'],
  createPrepackedWeights: [166, 'p', 'p'],
  releasePrepackedWeights: [167, 'v', 'p'],
  createSession: [168, 'p', 'psppp'],
  createSessionFromArray: [169, 'p', 'ppnppp'],
  synchronizeBoundInputs: [202, 'p', 'p'],
  appendCuda: [204, 'p', 'pp'],
  createCudaOptions: [205, 'p', 'p'],
  releaseCudaOptions: [208, 'v', 'p'],
} as const satisfies Record<string, readonly [number, string, string]>

const C_TYPES: Readonly<Record<string, string>> = {
  p: 'void *',
  s: 'const char *',
  i: 'int',
  n: 'size_t',
  v: 'void',
}

type FunctionName = keyof typeof FUNCTIONS

/** A memory address, or 0n for NULL. */
export type Pointer = bigint

/** An argument of a C function: number, string, address, or memory that it reads or writes. */
type NativeArgument = number | string | Pointer | ArrayBufferView | null

/** A C function; `async` runs it on a thread of libuv's pool. */
interface NativeFunction {
  (...args: NativeArgument[]): unknown
  readonly async: (...args: unknown[]) => void
}

/** ONNX Runtime's C API as callable functions. */
export interface Library extends Readonly<Record<FunctionName, NativeFunction>> {
  readonly version: string
  /** Keeps the shared library mapped: a garbage-collected handle would unload it. */
  readonly handle: object
}

/** Opens the shared library that onnxruntime-node ships for this platform. */
export function openLibrary(): Library {
  // ONNX Runtime sends telemetry about models and machine to its vendor. It reads this variable of
  // the process environment once.
  process.env.ORT_DISABLE_TELEMETRY ??= '1'
  const handle = koffi.load(findLibraryFile())
  const base = handle.func('void *OrtGetApiBase()')()
  const [getApi, getVersion] = koffi.decode(base, koffi.array('void *', 2)) as Pointer[]
  const version = koffi.call(getVersion, koffi.proto('const char *', [])) as string
  const api = koffi.call(getApi, koffi.proto('void *', ['uint32_t']), API_VERSION) as Pointer
  const table = koffi.decode(api, koffi.array('void *', 210)) as Pointer[]
  const functions = Object.entries(FUNCTIONS).map(([name, [index, result, letters]]) => {
    const [resultType, ...types] = [...result, ...letters].map((letter) => defined(C_TYPES[letter]))
    return [name, koffi.decode(table[index], koffi.proto(defined(resultType), types))]
  })
  return Object.freeze({ ...Object.fromEntries(functions), version, handle }) as Library
}

/** Address of a JavaScript buffer; it is fixed while the buffer is reachable. */
export function addressOf(data: ArrayBufferView): Pointer {
  return koffi.address(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) as Pointer
}

/** Native memory as a buffer, without a copy; invalid once its owner releases it. */
export function viewMemory(address: Pointer, bytes: number): ArrayBuffer {
  return koffi.view(address, bytes)
}

/** Reads a NUL-terminated string. */
export function readString(address: Pointer): string {
  return koffi.decode.string(address)
}

/** Reads an array of addresses. */
export function readPointers(address: Pointer, count: number): Pointer[] {
  return count === 0 ? [] : (koffi.decode(address, koffi.array('void *', count)) as Pointer[])
}

function findLibraryFile(): string {
  const fileName = LIBRARY_FILES[process.platform]
  const entry = createRequire(import.meta.url).resolve('onnxruntime-node')
  const folder = join(dirname(dirname(entry)), 'bin', 'napi-v6', process.platform, process.arch)
  const file = join(folder, fileName ?? '')
  if (fileName === undefined || !existsSync(file)) {
    throw new Error(
      `ONNX Runtime ships no library for ${process.platform} on ${process.arch} (looked in ${folder})`,
    )
  }
  return file
}
