import { readLines } from '#api/http/lines.ts'
import { STORAGE_LIMIT_EXCEEDED } from '#api/stored/stored-bytes-store.ts'
import type { InputFault } from '#shared/db/schema/batches.ts'
import { isRecord, judgeJson, parseRecord } from '#shared/json.ts'
import { isStorable } from '#shared/storable.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import type { NewLine } from './batch-store.ts'

/** The maximum number of requests in a batch. */
const LINES_MAX = 50_000
const FAULTS_MAX = 50
const CUSTOM_ID_LENGTH_MAX = 512
const LINE_BYTES_MAX = 4 * 1024 * 1024
const PAGE_LINES = 500
const PAGE_CHARS = 1024 * 1024

/** The input file is faulty. */
export class FaultyInputError extends Error {
  readonly faults: readonly InputFault[]

  constructor(faults: readonly InputFault[]) {
    super('the input file is faulty')
    this.name = 'FaultyInputError'
    this.faults = faults
  }
}

/**
 * The requests of an input file, in pages. Throws `FaultyInputError` at its end if any is faulty.
 */
export async function* readInput(
  store: ObjectStore,
  { objectKey, endpoint }: { readonly objectKey: string; readonly endpoint: string },
): AsyncGenerator<readonly NewLine[]> {
  const { body } = await store.get(objectKey)
  const faults: InputFault[] = []
  const seen = new Set<string>()
  let page: NewLine[] = []
  let chars = 0
  let number = 0
  for await (const text of readLines(body, LINE_BYTES_MAX)) {
    number += 1
    if (text.trim() === '') continue
    const line = readLine(text, number, { endpoint, seen })
    if ('code' in line) faults.push(line)
    else page.push(line)
    if (seen.size > LINES_MAX) faults.push(tooMany(number))
    if (faults.length >= FAULTS_MAX || seen.size > LINES_MAX) break
    chars += text.length
    // The lines of a faulty file are not stored; from here on only faults are collected.
    if (faults.length > 0) page = []
    if (page.length < PAGE_LINES && chars < PAGE_CHARS) continue
    yield page
    page = []
    chars = 0
  }
  if (faults.length > 0) throw new FaultyInputError(faults)
  if (seen.size === 0) throw new FaultyInputError([fault('empty_file', 'The input file is empty.')])
  if (page.length > 0) yield page
}

/** The same pages; throws `FaultyInputError` at the first that the storage has no room for. */
export async function* within(
  pages: AsyncIterable<readonly NewLine[]>,
  hasRoom: (bytes: number) => Promise<boolean>,
): AsyncGenerator<readonly NewLine[]> {
  let bytes = 0
  for await (const page of pages) {
    bytes += page.reduce((sum, { body }) => sum + Buffer.byteLength(body), 0)
    if (!(await hasRoom(bytes))) {
      throw new FaultyInputError([
        fault(STORAGE_LIMIT_EXCEEDED.code, STORAGE_LIMIT_EXCEEDED.message),
      ])
    }
    yield page
  }
}

function readLine(
  text: string,
  number: number,
  { endpoint, seen }: { readonly endpoint: string; readonly seen: Set<string> },
): NewLine | InputFault {
  const at = (code: string, param: string | null, message: string): InputFault =>
    fault(code, message, { param, line: number })
  const tooComplex = judgeJson(Buffer.from(text))
  if (tooComplex !== undefined) {
    return at(tooComplex.code ?? 'json_too_complex', null, tooComplex.message)
  }
  const record = parseRecord(text)
  if (record === undefined) {
    return at('invalid_json_line', null, 'This line is not parseable as a JSON object.')
  }
  const { custom_id: customId, method, url, body } = record
  if (typeof customId !== 'string' || customId === '') {
    return at('missing_required_parameter', 'custom_id', 'Missing required parameter: custom_id.')
  }
  if (customId.length > CUSTOM_ID_LENGTH_MAX) {
    const limit = `at most ${CUSTOM_ID_LENGTH_MAX} characters`
    return at('string_above_max_length', 'custom_id', `The custom_id may have ${limit}.`)
  }
  if (!isStorable(customId)) {
    return at('invalid_value', 'custom_id', 'The custom_id contains an invalid character.')
  }
  if (seen.has(customId)) {
    return at('duplicate_custom_id', 'custom_id', 'The custom_id of this line occurred before.')
  }
  seen.add(customId)
  if (method !== 'POST') return at('invalid_method', 'method', 'The method must be POST.')
  if (url !== endpoint) {
    return at('invalid_url', 'url', `The url must be the endpoint of the batch, ${endpoint}.`)
  }
  if (!isRecord(body)) {
    return at('missing_required_parameter', 'body', 'Missing required parameter: body.')
  }
  if (body.stream === true) {
    return at('invalid_value', 'body.stream', 'Streaming is not supported in batches.')
  }
  return { line: number, customId, body: JSON.stringify(body) }
}

function tooMany(line: number): InputFault {
  const message = `A batch may have at most ${LINES_MAX} requests.`
  return fault('too_many_requests', message, { param: null, line })
}

function fault(
  code: string,
  message: string,
  place: { readonly param: string | null; readonly line: number | null } = {
    param: null,
    line: null,
  },
): InputFault {
  return { code, message, ...place }
}
