import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'

import { type Catalogue, parseCatalogue } from './catalogue.ts'
import { readFileWithin } from './read-file.ts'

const CATALOGUE_BYTES_MAX = 16 << 20
const PROJECT = join(import.meta.dirname, '..')

/**
 * The absolute path of a catalogue or a model folder. A relative path starts at the working folder;
 * if nothing exists there, it refers to the files that ship with Millrace.
 */
export function findShipped(path: string): string {
  const own = resolve(path)
  return existsSync(own) ? own : resolve(PROJECT, path)
}

/** Reads and checks `models.json`. */
export async function loadCatalogue(file: string): Promise<Catalogue> {
  const path = findShipped(file)
  const bytes = await readFileWithin(path, CATALOGUE_BYTES_MAX).catch((cause: Error) => {
    const { message } = cause
    throw new Error(`The catalogue cannot be read: ${message}; check MILLRACE_CATALOGUE`, { cause })
  })
  try {
    // Some editors write a byte order mark at the start of a file.
    return parseCatalogue(parseJson(bytes.toString('utf8').replace(/^\uFEFF/, '')))
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    throw new Error(`The catalogue ${path} is wrong: ${reason}`, { cause: error })
  }
}

function parseJson(text: string): unknown {
  if (text.trim() === '') throw new Error('it is empty')
  try {
    return JSON.parse(text)
  } catch (error) {
    const { message } = error as Error
    if (/\(line \d+ column \d+\)$/.test(message)) throw error
    // The rest of the message quotes the surrounding text.
    const [what = ''] = message.split(', ')
    throw new Error(`${what} in JSON (line ${lineOfFault(text)})`, { cause: error })
  }
}

/** The line of the first invalid token, which V8's parser does not report. */
function lineOfFault(text: string): number {
  let [sound, faulty] = [0, text.length]
  while (sound + 1 < faulty) {
    const middle = (sound + faulty) >> 1
    if (hasFault(text.slice(0, middle))) faulty = middle
    else sound = middle
  }
  return text.slice(0, sound).split('\n').length
}

/** Whether a prefix of the text is already invalid; otherwise the prefix is only incomplete. */
function hasFault(beginning: string): boolean {
  try {
    JSON.parse(beginning)
    return false
  } catch (error) {
    return (error as Error).message.startsWith('Unexpected token')
  }
}
