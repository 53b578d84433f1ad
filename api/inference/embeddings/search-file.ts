import { setImmediate } from 'node:timers/promises'

import { readLines } from '#api/http/lines.ts'
import type { InferenceFile } from '#api/inference/services.ts'
import { CancelledError, failure, type ServiceError } from '#shared/errors.ts'
import { judgeJson } from '#shared/json.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { BestDocuments, KeywordRanking } from './bm25.ts'

const FILE_BYTES_MAX = 64 * 1024 * 1024
/** The most characters of all scored documents of a file: as much as a body may have. */
const FOUND_CHARACTERS_MAX = 8 * 1024 * 1024
/** Other requests run after this many characters; each line counts as a few more. */
const CHARACTERS_PER_SLICE = 256 * 1024
const CHARACTERS_PER_LINE = 64

/** One document of a file, and its position there. */
export interface FileDocument {
  readonly index: number
  readonly text: string
  readonly metadata: unknown
}

/**
 * The documents of an uploaded file whose words match the query best, at most `limit`, in the order
 * of the file. The file is read for each step, so that only the returned documents are ever in
 * memory together.
 */
export async function narrowFile(
  store: ObjectStore,
  file: InferenceFile,
  options: { readonly query: string; readonly limit: number; readonly signal: AbortSignal },
): Promise<readonly FileDocument[]> {
  const { query, limit, signal } = options
  checkFile(file)
  const read = () => readDocuments(store, file, signal)
  const ranking = new KeywordRanking(query)
  for await (const document of read()) ranking.add(parse(document).text)
  if (ranking.documents <= limit) return gather(read(), () => true)
  const best = new BestDocuments(limit)
  for await (const document of read()) {
    best.add(document.index, ranking.scoreOf(parse(document).text))
  }
  const { indices } = best
  return gather(read(), ({ index }) => indices.has(index))
}

/** A line of a file that holds a document. */
interface DocumentLine {
  readonly index: number
  readonly line: string
}

/** The selected documents, within the limits of a body, because they are part of the request. */
async function gather(
  documents: AsyncIterable<DocumentLine>,
  isMeant: (document: DocumentLine) => boolean,
): Promise<readonly FileDocument[]> {
  const found: DocumentLine[] = []
  let characters = 0
  for await (const document of documents) {
    if (!isMeant(document)) continue
    characters += document.line.length
    if (characters > FOUND_CHARACTERS_MAX) {
      throw tooLarge(`at most ${FOUND_CHARACTERS_MAX} characters of documents are allowed.`)
    }
    found.push(document)
  }
  const fault = judgeJson(Buffer.from(`[${found.map(({ line }) => line).join(',')}]`))
  if (fault !== undefined) throw tooLarge(fault.message)
  return found.map(parse)
}

function tooLarge(reason: string): ServiceError {
  return failure.invalidRequest(
    `Invalid 'file': the documents to be scored are too large. Lower 'max_rerank'. ${reason}`,
    { param: 'file', code: 'documents_too_large' },
  )
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
): AsyncGenerator<DocumentLine> {
  const { body } = await store.get(objectKey)
  let index = 0
  let characters = 0
  for await (const line of readLines(body, FILE_BYTES_MAX)) {
    if (signal.aborted) throw new CancelledError()
    if (line.trim() === '') continue
    yield { index, line }
    index += 1
    characters += line.length + CHARACTERS_PER_LINE
    if (characters < CHARACTERS_PER_SLICE) continue
    characters = 0
    await setImmediate()
  }
}

/**
 * Lines were checked when the file was uploaded. A malformed line means that another version wrote
 * the file.
 */
function parse({ line, index }: DocumentLine): FileDocument {
  try {
    const { text, metadata = null } = JSON.parse(line)
    if (typeof text === 'string') return { index, text, metadata }
  } catch {
    // Handled below, like a line without a text.
  }
  throw failure.invalidRequest(
    `Expected file to have JSONL format with text and (optional) metadata keys. Invalid format on line ${index + 1}.`,
    { param: 'file', code: 'invalid_file_format' },
  )
}
