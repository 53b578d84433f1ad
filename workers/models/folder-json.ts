import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { isRecord } from '#shared/records.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

/** A JSON object of a model's folder. Throws `ModelLoadError` naming a file that is missing or none. */
export async function readJson(folder: string, name: string): Promise<Record<string, unknown>> {
  const found = await findJson(folder, name)
  if (found === undefined) throw new ModelLoadError(folder, `${name} is missing`)
  return found
}

/** The same of a file that may be missing. */
export async function findJson(
  folder: string,
  name: string,
): Promise<Record<string, unknown> | undefined> {
  let value: unknown
  try {
    value = JSON.parse(await readFile(join(folder, name), 'utf8'))
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    const reason = error instanceof SyntaxError ? 'is no JSON' : 'cannot be read'
    throw new ModelLoadError(folder, `${name} ${reason}: ${message}`)
  }
  if (isRecord(value)) return value
  throw new ModelLoadError(folder, `${name} is not a JSON object`)
}
