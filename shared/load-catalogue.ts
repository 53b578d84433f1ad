import { readFile } from 'node:fs/promises'

import { parseCatalogue, type Catalogue } from './catalogue.ts'

/** Reads and checks `models.json`. */
export async function loadCatalogue(path: string): Promise<Catalogue> {
  const text = await readFile(path, 'utf8').catch((cause: Error) => {
    const { message } = cause
    throw new Error(`The catalogue cannot be read: ${message}; check MILLRACE_CATALOGUE`, { cause })
  })
  try {
    return parseCatalogue(JSON.parse(text))
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    throw new Error(`The catalogue ${path} is wrong: ${reason}`, { cause: error })
  }
}
