import { flushCompileCache } from 'node:module'

import koffi from 'koffi'

/**
 * Ends this process at once. `process.exit` first waits for every call that a thread still makes,
 * and a model that is being loaded, or a long run, cannot be interrupted there: no timer and no
 * signal handler would be left to cut that short.
 */
export function leaveProcess(status: number): never {
  // What was compiled is kept at the end of a process, of which there will be none.
  flushCompileCache()
  try {
    koffi.load(null).func('void _exit(int)')(status)
  } catch {
    // A platform without it waits.
  }
  process.exit(status)
}
