import { flushCompileCache } from 'node:module'

import koffi from 'koffi'

/**
 * Ends this process at once. `process.exit` first waits for every native call on another thread,
 * and a model load or a long run cannot be interrupted there: no timer and no signal handler would
 * be able to end the process.
 */
export function leaveProcess(status: number): never {
  // Node writes its compile cache at a normal exit, which this skips.
  flushCompileCache()
  try {
    koffi.load(null).func('void _exit(int)')(status)
  } catch {
    // Platforms without `_exit` wait.
  }
  process.exit(status)
}
