import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** The version of this release, as package.json states it. */
export async function readVersion(): Promise<string> {
  const text = await readFile(join(import.meta.dirname, '../package.json'), 'utf8')
  return JSON.parse(text).version
}

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
