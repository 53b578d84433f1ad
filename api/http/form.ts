import type { Readable } from 'node:stream'

import type { Multipart } from '@fastify/multipart'
import type { FastifyRequest } from 'fastify'

import { CancelledError, failure, ServiceError } from '#shared/errors.ts'

import { nearestName } from './near-names.ts'
import { passThrough } from './pass-through.ts'
import { ChunkJoiner } from './sse.ts'
import { reportIgnored } from './validation.ts'

/** One file of a form, as a stream. */
export interface FormFile {
  readonly filename: string
  readonly stream: Readable
  /** Aborts when the form is refused, because the received parts are then useless. */
  readonly signal: AbortSignal
}

/** The permitted fields and files of a form. */
interface FormRules<File> {
  readonly fields: readonly string[]
  /** Fields that may be repeated, also written with brackets. */
  readonly lists?: readonly string[]
  /** Fields with a file, each at most once, also written with brackets. */
  readonly files: readonly string[]
  /**
   * File fields that may be repeated: only the first file is used; the others are dropped and
   * reported.
   */
  readonly firstOnly?: readonly string[]
  /** The size limit of the whole body. */
  readonly bytesMax: number
  /** The refusal of a larger body. */
  tooLarge(bytes: number): ServiceError
  /** Reads a file to its end; `fields` are those that came before it. */
  receive(file: FormFile, fieldname: string, fields: Form<File>['fields']): Promise<File>
}

/** A form that was read to its end. */
export interface Form<File> {
  /** The text of each field; an array of texts for a list. */
  readonly fields: Readonly<Record<string, string | string[]>>
  readonly files: Readonly<Partial<Record<string, File>>>
}

const FORM_LIMITS = {
  fileSize: Number.POSITIVE_INFINITY,
  files: 20,
  fields: 32,
  parts: 52,
  fieldSize: 64 * 1024,
  headerPairs: 32,
}
/**
 * After a refusal this much of the body is read and dropped, so that the client receives the
 * answer.
 */
const DRAINED_BYTES_MAX = 64 * 1024 * 1024

/**
 * Reads a form whose fields and files come in any order. An unknown or repeated part, and a body
 * that is too large or incomplete, are refused at the first part that shows the fault; later parts
 * are not parsed.
 */
export async function readForm<File>(
  request: FastifyRequest,
  rules: FormRules<File>,
): Promise<Form<File>> {
  const ignoresUnknown = request.routeOptions.config.unknownFields === 'ignore'
  const reading = new FormReading(rules, ignoresUnknown)
  try {
    const announced = Number(request.headers['content-length'] ?? 0)
    if (announced > rules.bytesMax) throw rules.tooLarge(announced)
    const { raw } = request
    const parts = partsOf(request)
    raw.on('data', reading.count)
    // The first call connects the parser; from then on the body flows.
    await Promise.race([reading.readAll(parts), reading.refusal])
    await request.context.confirmCaller?.()
    reportIgnored(request, reading.ignored)
    return reading.form
  } catch (error) {
    discardBody(request)
    await reading.abandon(error)
    if (request.raw.destroyed && !request.raw.complete) throw new CancelledError()
    throw error
  } finally {
    request.raw.off('data', reading.count)
  }
}

function partsOf(request: FastifyRequest): AsyncIterableIterator<Multipart> {
  try {
    return request.parts({ limits: FORM_LIMITS, preservePath: true })
  } catch (error) {
    throw asFormFault(error)
  }
}

class FormReading<File> {
  /** Rejects as soon as there is a reason to refuse the form. */
  readonly refusal: Promise<never>
  /** Unknown fields and further files, which were dropped. */
  readonly ignored = new Set<string>()
  readonly #rules: FormRules<File>
  readonly #ignoresUnknown: boolean
  readonly #fields: Record<string, string | string[]> = {}
  readonly #files: Record<string, File> = {}
  readonly #receiving = new Map<string, Promise<void>>()
  readonly #streams: Readable[] = []
  readonly #abort = new AbortController()
  #bytes = 0
  #refuse: (error: unknown) => void = () => {}

  constructor(rules: FormRules<File>, ignoresUnknown: boolean) {
    this.#rules = rules
    this.#ignoresUnknown = ignoresUnknown
    this.refusal = new Promise((_resolve, reject) => {
      this.#refuse = reject
    })
    // The rejection is awaited only while the form is read.
    this.refusal.catch(() => {})
  }

  get form(): Form<File> {
    return { fields: this.#fields, files: this.#files }
  }

  readonly count = (chunk: Buffer): void => {
    this.#bytes += chunk.length
    if (this.#bytes > this.#rules.bytesMax) this.#refuse(this.#rules.tooLarge(this.#bytes))
  }

  /** Files are received while later parts are parsed. */
  async readAll(parts: AsyncIterableIterator<Multipart>): Promise<void> {
    for (;;) {
      const next = await parts.next().catch((error: unknown) => {
        throw asFormFault(error)
      })
      if (next.done === true) break
      if (next.value.type === 'file') this.#takeFile(next.value)
      else this.#takeField(next.value)
    }
    await Promise.all(this.#receiving.values())
  }

  /** Aborts files in transfer and waits for their end. */
  async abandon(cause: unknown): Promise<void> {
    const error = cause instanceof Error ? cause : new Error('the form was refused', { cause })
    this.#abort.abort(error)
    for (const stream of this.#streams) stream.destroy(error)
    await Promise.allSettled(this.#receiving.values())
  }

  #takeFile(part: Multipart & { readonly type: 'file' }): void {
    const name = this.#knownName(part.fieldname)
    if (name === undefined)
      throw unknownParameter(part.fieldname, this.#nearestName(part.fieldname))
    if (!this.#rules.files.includes(name)) throw wrongType(name, 'text', 'a file')
    if (this.#receiving.has(name)) {
      if (this.#rules.firstOnly?.includes(name) !== true) throw repeated(name)
      this.ignored.add(`${name}[1]`)
      this.#streams.push(part.file)
      // The parser reports a malformed part by itself.
      part.file.on('error', () => {}).resume()
      return
    }
    this.#streams.push(part.file)
    const received = this.#receive(part, name)
    received.catch(this.#refuse)
    this.#receiving.set(name, received)
  }

  async #receive(part: Multipart & { readonly type: 'file' }, name: string): Promise<void> {
    const { signal } = this.#abort
    const stream = passThrough(part.file, new ChunkJoiner())
    const file = { filename: fileNameOf(part.filename ?? ''), stream, signal }
    try {
      this.#files[name] = await this.#rules.receive(file, name, this.#fields)
    } catch (error) {
      // A malformed stream is a client error; the receiver causes any other failure.
      const isOwn = error instanceof ServiceError || part.file.errored === null
      throw isOwn ? error : asFormFault(part.file.errored)
    }
  }

  #takeField(part: Multipart & { readonly type: 'field' }): void {
    const name = this.#knownName(part.fieldname)
    if (name === undefined) {
      this.#takeUnknown(part.fieldname)
      return
    }
    if (this.#rules.files.includes(name)) throw wrongType(name, 'a file', 'text')
    if (part.valueTruncated) {
      throw failure.invalidRequest(`Invalid '${name}': string too long.`, {
        param: name,
        code: 'string_above_max_length',
      })
    }
    const text = typeof part.value === 'string' ? part.value : JSON.stringify(part.value)
    const before = this.#fields[name]
    if (this.#rules.lists?.includes(name)) this.#fields[name] = [before ?? [], text].flat()
    else if (before === undefined) this.#fields[name] = text
    else throw repeated(name)
  }

  #takeUnknown(fieldname: string): void {
    const intended = this.#nearestName(fieldname)
    if (!this.#ignoresUnknown || intended !== undefined) throw unknownParameter(fieldname, intended)
    this.ignored.add(fieldname.slice(0, 64).replace(/[^\w.\-[\]]/g, '?'))
  }

  #knownName(fieldname: string | undefined): string | undefined {
    // After a file the parser accepts parts without a name.
    if (fieldname === undefined) throw asFormFault(new Error('a part has no name'))
    const { fields, lists = [], files } = this.#rules
    const bare = fieldname.replace(/\[\]$/, '')
    if (lists.includes(bare) || files.includes(bare)) return bare
    return fields.includes(fieldname) ? fieldname : undefined
  }

  #nearestName(fieldname: string): string | undefined {
    const { fields, lists = [], files } = this.#rules
    return nearestName(fieldname, [...fields, ...lists, ...files])
  }
}

function unknownParameter(fieldname: string, intended: string | undefined): ServiceError {
  const name = fieldname.slice(0, 64)
  const hint = intended === undefined ? '' : ` Did you mean '${intended}'?`
  return failure.invalidRequest(`Unknown parameter: '${name}'.${hint}`, {
    param: name,
    code: 'unknown_parameter',
  })
}

/** Every parser error is a client error: a malformed or incomplete form. */
function asFormFault(error: unknown): unknown {
  if (error instanceof ServiceError) return error
  const code = (error as { code?: unknown }).code
  if (typeof code === 'string' && /^FST_.*(LIMIT|CONTENT_TYPE|TOO_LARGE)/.test(code)) return error
  return failure.invalidRequest('The form is malformed or ends too early.', { cause: error })
}

/** Reads the rest of a body and drops it, up to a limit. */
export function discardBody({ raw }: FastifyRequest): void {
  let bytes = 0
  raw.unpipe()
  raw.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > DRAINED_BYTES_MAX) raw.destroy()
  })
  raw.resume()
}

function repeated(name: string): ServiceError {
  return failure.invalidRequest(`Duplicate parameter: '${name}'.`, {
    param: name,
    code: 'duplicate_parameter',
  })
}

function wrongType(name: string, expected: string, found: string): ServiceError {
  return failure.invalidRequest(
    `Invalid type for '${name}': expected ${expected}, but got ${found} instead.`,
    { param: name, code: 'invalid_type' },
  )
}

/** The refusal of a form without one of its parameters. */
export function missingParameter(name: string): ServiceError {
  return failure.invalidRequest(`Missing required parameter: '${name}'.`, {
    param: name,
    code: 'missing_required_parameter',
  })
}

// An encoded word of mail headers (RFC 2047).
const ENCODED_WORD = /^=\?utf-8\?b\?([a-z0-9+/]*={0,2})\?=$/i

/**
 * The name of an uploaded file, without folders. .NET clients encode non-ASCII names like mail
 * headers, `=?utf-8?B?…?=`; browsers, curl and httpx encode only the quotation mark, as `%22`.
 */
export function fileNameOf(stated: string): string {
  const word = ENCODED_WORD.exec(stated)?.[1]
  const name =
    word === undefined ? stated.replaceAll('%22', '"') : Buffer.from(word, 'base64').toString()
  const last = name.slice(Math.max(name.lastIndexOf('/'), name.lastIndexOf('\\')) + 1)
  return last === '.' || last === '..' ? '' : last
}
