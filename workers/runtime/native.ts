import { defined } from '#shared/records.ts'

import type { Library, NativeArgument, Pointer } from './library.ts'

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
