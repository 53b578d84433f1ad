import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/**
 * Frees what only the start needed: V8 would keep it, and the room that young objects took
 * meanwhile, until the process allocates as much again. Blocks the process for 50 to 100 ms.
 */
export function collectGarbage(): void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as NodeJS.GCFunction
  // A last resort also shrinks the room of young objects.
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' })
}
