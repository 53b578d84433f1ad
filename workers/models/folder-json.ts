import { isRecord, judgeJson } from '#shared/json.ts'
import { readFileWithin } from '#shared/read-file.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { pathInside } from './inside-folder.ts'

type Json = Record<string, unknown>

/** Converts a text that is almost JSON to JSON. */
type Prepare = (text: string) => string

/**
 * A JSON object in a model's folder. Throws `ModelLoadError` naming the file if it is missing or
 * not an object.
 */
export async function readJson(folder: string, name: string, prepare?: Prepare): Promise<Json> {
  const found = await findJson(folder, name, prepare)
  if (found === undefined) throw new ModelLoadError(folder, `${name} is missing`)
  return found
}

/** The same for a file that may be missing. */
export async function findJson(
  folder: string,
  name: string,
  prepare?: Prepare,
): Promise<Json | undefined> {
  const value = await findJsonValue(folder, name, prepare)
  if (value === undefined || isRecord(value)) return value
  throw new ModelLoadError(folder, `${name} is not a JSON object`)
}

/** Any JSON value of a model's folder; undefined when the file is missing. */
export async function findJsonValue(
  folder: string,
  name: string,
  prepare: Prepare = (text) => text,
): Promise<unknown> {
  const text = await findModelText(folder, name)
  if (text === undefined) return undefined
  try {
    return JSON.parse(prepare(text))
  } catch (error) {
    throw new ModelLoadError(folder, `${name} is not JSON: ${(error as Error).message}`)
  }
}

const TEXT_BYTES_MAX = 128 << 20 // the largest tokenizers take some 35 MB
const LF = 10
const CR = 13
const LINES_MAX = 1_000_000 // the largest lists of merges have some 600,000
/** The largest tokenizers have some two million values. */
const JSON_LIMITS = {
  depth: 200,
  members: 5_000_000,
  values: 5_000_000,
  textBytes: 16 << 20,
  requiresFinite: false,
}

/**
 * A text file in a model's folder. Throws `ModelLoadError`; rejects with `ENOENT` if there is none.
 */
export async function readModelText(folder: string, name: string): Promise<string> {
  const text = await findModelText(folder, name)
  if (text === undefined) {
    throw Object.assign(new ModelLoadError(folder, `${name} is missing`), { code: 'ENOENT' })
  }
  return text
}

/**
 * A text file that may be missing. Throws `ModelLoadError` for a file that is too large, not UTF-8,
 * or outside the folder, and for overly complex JSON or too many lines.
 */
export async function findModelText(folder: string, name: string): Promise<string | undefined> {
  const bytes = await findModelBytes(folder, name, TEXT_BYTES_MAX)
  if (bytes === undefined) return undefined
  const isJson = /\.(json|metadata)$/.test(name)
  const excess = isJson ? judgeJson(bytes, JSON_LIMITS)?.message : judgeLines(bytes)
  if (excess !== undefined) throw new ModelLoadError(folder, `${name}: ${excess}`)
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new ModelLoadError(folder, `${name} is not UTF-8`)
  }
}

/** Reports a text with too many lines. */
function judgeLines(bytes: Uint8Array): string | undefined {
  let lines = 1
  for (let at = 0; at < bytes.length; at += 1) {
    if (bytes[at] !== LF && (bytes[at] !== CR || bytes[at + 1] === LF)) continue
    lines += 1
    if (lines > LINES_MAX) return `it has more than ${LINES_MAX} lines`
  }
  return undefined
}

/** A file that may be missing. Throws `ModelLoadError` for one too large or outside the folder. */
export async function findModelBytes(
  folder: string,
  name: string,
  bytesMax: number,
): Promise<Buffer | undefined> {
  try {
    return await readFileWithin(await pathInside(folder, name), bytesMax)
  } catch (error) {
    if (error instanceof ModelLoadError) throw error
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new ModelLoadError(folder, `${name} cannot be read: ${message}`)
  }
}

/** The bounds of a whole number in a configuration. */
interface CountBounds {
  /** The value if the configuration states none. */
  readonly fallback: number
  readonly min?: number
  readonly max: number
}

/** A whole number of a configuration. Throws `ModelLoadError` when it is out of bounds. */
export function countIn(
  folder: string,
  config: Readonly<Json>,
  name: string,
  { fallback, min = 1, max }: CountBounds,
): number {
  const value = config[name]
  if (typeof value !== 'number') return fallback
  if (Number.isInteger(value) && value >= min && value <= max) return value
  throw new ModelLoadError(
    folder,
    `${name} is ${value}, expected a whole number from ${min} to ${max}`,
  )
}

/**
 * Reads token ids, mostly of single characters, from `vocab.json`, `tokenizer.json`,
 * `config.json` or `tokens.txt`. `language` chooses where a file has a vocabulary for each one.
 * Throws `ModelLoadError`.
 */
export async function readVocabulary(
  folder: string,
  language?: string,
): Promise<ReadonlyMap<string, number>> {
  const found =
    (await findJson(folder, 'vocab.json')) ??
    (await findVocabulary(folder)) ??
    vocabularyOf(await findModelText(folder, 'tokens.txt'))
  const vocabulary =
    isRecord(found) && Object.values(found).some(isRecord)
      ? ofLanguage(folder, found, language)
      : found
  if (!isRecord(vocabulary)) {
    throw new ModelLoadError(
      folder,
      'there is no vocab.json or tokens.txt, and neither tokenizer.json (model.vocab) nor config.json (vocab) has a vocabulary',
    )
  }
  const entries = Object.entries(vocabulary).filter(
    (entry): entry is [string, number] => Number.isInteger(entry[1]) && (entry[1] as number) >= 0,
  )
  return new Map(entries)
}

function ofLanguage(folder: string, vocabularies: Json, language: string | undefined): Json {
  const found = language === undefined ? undefined : vocabularies[language]
  if (isRecord(found)) return found
  throw new ModelLoadError(
    folder,
    'vocab.json has a vocabulary for each language; target_lang in tokenizer_config.json must name the one that the graph was exported with',
  )
}

async function findVocabulary(folder: string): Promise<unknown> {
  const tokenizer = await findJson(folder, 'tokenizer.json')
  if (tokenizer !== undefined) return isRecord(tokenizer.model) ? tokenizer.model.vocab : undefined
  return (await findJson(folder, 'config.json'))?.vocab
}

/** Parses lines of a token, a space and its id (sherpa-onnx); a token may be a space. */
function vocabularyOf(text: string | undefined): Record<string, number> | undefined {
  const entries = text?.split('\n').flatMap((line) => {
    const [, token, id] = /^(.+) (\d+)\r?$/.exec(line) ?? []
    return token === undefined ? [] : [[token, Number(id)] as const]
  })
  return entries && Object.fromEntries(entries)
}
