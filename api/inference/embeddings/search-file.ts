import { setImmediate } from 'node:timers/promises'

import { readLines } from '#api/http/lines.ts'
import type { InferenceFile } from '#api/inference/services.ts'
import { CancelledError, failure } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { KeywordRanking } from './bm25.ts'

const FILE_BYTES_MAX = 64 * 1024 * 1024
/** Other requests get their turn after this many characters. */
const CHARS_PER_SLICE = 256 * 1024

/** One document of a file, and its place there. */
export interface FileDocument {
  readonly index: number
  readonly text: string
  readonly metadata: unknown
}

/**
 * The documents of an uploaded file whose words suit the query best, at most `limit`. The file is
 * read twice, so that only the documents that are returned are ever in memory together.
 */
export async function narrowFile(
  store: ObjectStore,
  file: InferenceFile,
  options: { readonly query: string; readonly limit: number; readonly signal: AbortSignal },
): Promise<readonly FileDocument[]> {
  const { query, limit, signal } = options
  checkFile(file)
  const ranking = new KeywordRanking(query)
  for await (const { text } of readDocuments(store, file, signal)) ranking.add(text)
  const order = new Map(ranking.best(limit).map(({ index }, rank) => [index, rank]))
  const found: FileDocument[] = []
  for await (const document of readDocuments(store, file, signal)) {
    if (order.has(document.index)) found.push(document)
  }
  return found.sort((a, b) => (order.get(a.index) ?? 0) - (order.get(b.index) ?? 0))
}

function checkFile({ purpose, bytes }: InferenceFile): void {
  if (purpose !== 'search') {
    throw failure.invalidRequest(
      `Invalid 'file': expected a file with the purpose 'search', but it was uploaded for '${purpose}'.`,
      { param: 'file', code: 'invalid_value' },
    )
  }
  if (bytes > FILE_BYTES_MAX) {
    throw failure.invalidRequest(
      `Invalid 'file': a file of ${bytes} bytes is too large to be searched; ${FILE_BYTES_MAX} bytes are allowed.`,
      { param: 'file', code: 'file_too_large' },
    )
  }
}

async function* readDocuments(
  store: ObjectStore,
  { objectKey }: InferenceFile,
  signal: AbortSignal,
): AsyncGenerator<FileDocument> {
  const { body } = await store.get(objectKey)
  let index = 0
  let chars = 0
  for await (const line of readLines(body, FILE_BYTES_MAX)) {
    if (signal.aborted) throw new CancelledError()
    if (line.trim() === '') continue
    yield { index, ...readLine(line, index) }
    index += 1
    chars += line.length
    if (chars < CHARS_PER_SLICE) continue
    chars = 0
    await setImmediate()
  }
}

/** Lines were checked when the file was uploaded; anything else here is a file of another time. */
function readLine(line: string, index: number): { text: string; metadata: unknown } {
  try {
    const { text, metadata = null } = JSON.parse(line)
    if (typeof text === 'string') return { text, metadata }
  } catch {
    // Answered below, like a line without a text.
  }
  throw failure.invalidRequest(
    `Expected file to have JSONL format with text and (optional) metadata keys. Invalid format on line ${index + 1}.`,
    { param: 'file', code: 'invalid_file_format' },
  )
}
