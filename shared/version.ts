import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

/** The version of this release, as package.json states it. */
export async function readVersion(): Promise<string> {
  const text = await readFile(join(import.meta.dirname, '../package.json'), 'utf8')
  return JSON.parse(text).version
}
