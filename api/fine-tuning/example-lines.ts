import { once } from 'node:events'
import { PassThrough } from 'node:stream'

import { LineTooLongError, readLines } from '#api/http/lines.ts'
import type { TrainingExample } from '#shared/contracts/training.ts'
import { ServiceError } from '#shared/errors.ts'
import { judgeJson, parseRecord } from '#shared/json.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

/** Reads one line as an example; throws `invalidRequest` that names the field at fault. */
export type ReadExample = (line: Record<string, unknown>) => TrainingExample

/** One fault of a file of examples. */
interface LineFault {
  /** From 1; null for a fault of the whole file. */
  readonly line: number | null
  readonly param: string | null
  readonly code: string
  readonly message: string
}

/** The file is faulty. */
export class FaultyExamplesError extends Error {
  /** The field of the request that names the file. */
  readonly param: string
  readonly faults: readonly LineFault[]

  constructor(param: string, faults: readonly LineFault[]) {
    super('the file of examples is faulty')
    this.name = 'FaultyExamplesError'
    this.param = param
    this.faults = faults
  }
}

/** The most faults that are listed for one file. */
const FAULTS_MAX = 50
const LINE_BYTES_MAX = 4 * 1024 * 1024

interface ExampleFile {
  readonly store: ObjectStore
  readonly readExample: ReadExample
  /** The field of the request that names the file. */
  readonly param: string
  readonly objectKey: string
  /** Where the prepared examples are written. */
  readonly preparedKey: string
  readonly examplesMax: number
  readonly signal: AbortSignal
}

/**
 * Checks every line of an uploaded file and writes the examples in the trainer's format; holds one
 * line at a time. Throws `FaultyExamplesError` with the first faults, and then stores nothing.
 */
export async function prepareExamples(file: ExampleFile): Promise<{ readonly examples: number }> {
  const { store, preparedKey, signal } = file
  const output = new PassThrough()
  const abort = new AbortController()
  const stored = store.put(preparedKey, output, {
    signal: AbortSignal.any([signal, abort.signal]),
  })
  // The wait below throws a failure of the store.
  stored.catch(() => output.destroy())
  try {
    let examples = 0
    for await (const example of readExamples(file)) {
      examples += 1
      if (output.destroyed) break
      if (!output.write(`${JSON.stringify(example)}\n`)) await drained(output)
    }
    output.end()
    await stored
    return { examples }
  } catch (error) {
    abort.abort()
    output.destroy()
    await stored.catch(() => {
      // The stream was ended above.
    })
    throw error
  }
}

async function drained(output: PassThrough): Promise<void> {
  const closed = new AbortController()
  try {
    await Promise.race([
      once(output, 'drain', { signal: closed.signal }),
      once(output, 'close', { signal: closed.signal }),
    ])
  } finally {
    closed.abort()
  }
}

/** The examples of a file, up to the first faulty line. */
async function* readExamples(file: ExampleFile): AsyncGenerator<TrainingExample> {
  const { store, param, objectKey, examplesMax, readExample, signal } = file
  const { body } = await store.get(objectKey)
  const faults: LineFault[] = []
  let number = 0
  let examples = 0
  try {
    for await (const text of readLines(body, LINE_BYTES_MAX)) {
      signal.throwIfAborted()
      number += 1
      if (text.trim() === '') continue
      examples += 1
      if (examples > examplesMax) {
        faults.push(tooMany(number, examplesMax))
        break
      }
      const example = readLine(text, number, readExample)
      if ('code' in example) faults.push(example)
      else if (faults.length === 0) yield example
      if (faults.length >= FAULTS_MAX) break
    }
  } catch (error) {
    if (!(error instanceof LineTooLongError)) throw error
    const message = `Line ${number + 1} is longer than ${LINE_BYTES_MAX} bytes.`
    faults.push({ line: number + 1, param: null, code: 'line_too_long', message })
  } finally {
    body.destroy()
  }
  if (examples === 0 && faults.length === 0) faults.push(EMPTY)
  if (faults.length > 0) throw new FaultyExamplesError(param, faults)
}

const EMPTY: LineFault = {
  line: null,
  param: null,
  code: 'empty_file',
  message: 'The file has no examples.',
}

function readLine(
  text: string,
  line: number,
  readExample: ReadExample,
): TrainingExample | LineFault {
  const at = (code: string, param: string | null, message: string): LineFault => ({
    line,
    param,
    code,
    message: `Line ${line}: ${message}`,
  })
  const bytes = Buffer.from(text)
  const tooComplex = judgeJson(bytes)
  if (tooComplex !== undefined) {
    return at(tooComplex.code ?? 'json_too_complex', tooComplex.param ?? null, tooComplex.message)
  }
  const record = parseRecord(text)
  if (record === undefined) return at('invalid_json_line', null, 'expected a JSON object.')
  try {
    return readExample(record)
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    return at(error.code ?? 'invalid_value', error.param ?? null, error.message)
  }
}

function tooMany(line: number, examplesMax: number): LineFault {
  const message = `A file may have at most ${examplesMax} examples.`
  return { line, param: null, code: 'too_many_examples', message }
}
