import { readFile, stat } from 'node:fs/promises'
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
    value = JSON.parse(await readModelText(join(folder, name)))
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    const reason = error instanceof SyntaxError ? 'is no JSON' : 'cannot be read'
    if (error instanceof ModelLoadError) throw error
    throw new ModelLoadError(folder, `${name} ${reason}: ${message}`)
  }
  if (isRecord(value)) return value
  throw new ModelLoadError(folder, `${name} is not a JSON object`)
}

const TEXT_BYTES_MAX = 128 << 20 // the largest tokenizers take some 35 MB

/** A text file of a model's folder. Throws `ModelLoadError` for one that is too large or no UTF-8. */
export async function readModelText(path: string): Promise<string> {
  const { size } = await stat(path)
  if (size > TEXT_BYTES_MAX) {
    throw new ModelLoadError(
      path,
      `${size} bytes are more than the ${TEXT_BYTES_MAX} that are read`,
    )
  }
  const bytes = await readFile(path)
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new ModelLoadError(path, 'the file is not UTF-8')
  }
}
