import { flushCompileCache } from 'node:module'

import koffi from 'koffi'

import { collectGarbage } from '#shared/process.ts'

/**
 * Ends this process at once. `process.exit` first waits for every native call on another thread,
 * and a model load or a long run cannot be interrupted there: timers and signal handlers could not
 * end the process.
 */
export function leaveProcess(status: number): never {
  // Node writes its compile cache at a normal exit, which this skips.
  flushCompileCache()
  try {
    koffi.load(null).func('void _exit(int)')(status)
  } catch {
    // On platforms without `_exit` the exit waits.
  }
  process.exit(status)
}

/**
 * Returns memory to the system that V8 and the C library keep after models were loaded. Reading and
 * optimizing five small models leaves 45 MiB behind.
 */
export function trimMemory(): void {
  collectGarbage()
  try {
    const trim = koffi.load('libc.so.6').func('int malloc_trim(size_t)')
    // Runs on another thread, because it takes about 50 ms.
    trim.async(0, () => {})
  } catch {
    // Only glibc has the function; other C libraries keep less.
  }
}
