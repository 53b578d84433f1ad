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
 * Frees the memory that only the start needed. V8 would otherwise keep it, together with the
 * enlarged young generation, until the process allocates as much again. Blocks the process for 50
 * to 100 ms.
 */
export function collectGarbage(): void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as NodeJS.GCFunction
  // A last-resort collection also shrinks the young generation.
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' })
}
