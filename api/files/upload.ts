import { createHash } from 'node:crypto'
import { basename } from 'node:path'
import { Readable } from 'node:stream'

import type { Multipart } from '@fastify/multipart'

import { failure } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { JsonLinesCheck, PURPOSES } from './json-lines.ts'
import type { StoredUpload } from './files.ts'

const FILENAME_LENGTH_MAX = 255
const FIELD_NAMES = ['purpose', 'file']

interface ReceivedFile {
  readonly objectKey: string
  readonly filename: string
  readonly bytes: number
  readonly sha256: Buffer
  readonly check: JsonLinesCheck
}

/**
 * Streams the file of a form into the store, counting, hashing and checking its bytes on the way.
 * Fields may come in any order. On any fault nothing stays in the store and the fault is thrown.
 */
export async function receiveUpload(
  parts: AsyncIterable<Multipart>,
  context: {
    readonly organizationId: string
    readonly store: ObjectStore
    /** Bytes that still fit; a longer file breaks off. */
    readonly bytesMax: number
    readonly signal: AbortSignal
  },
): Promise<StoredUpload> {
  let received: ReceivedFile | undefined
  let purpose: string | undefined
  try {
    for await (const part of parts) {
      if (!FIELD_NAMES.includes(part.fieldname)) throw unexpectedField(part.fieldname)
      if (part.type === 'file') {
        if (part.fieldname !== 'file') throw expectedText(part.fieldname)
        if (received !== undefined)
          throw failure.invalidRequest('Only one file is allowed.', { param: 'file' })
        received = await receiveFile(part, purpose, context)
      } else if (part.fieldname === 'purpose') {
        purpose = checkPurpose(String(part.value))
      } else {
        throw failure.invalidRequest(
          "Invalid type for 'file': expected a file, but got text instead.",
          {
            param: 'file',
            code: 'invalid_type',
          },
        )
      }
    }
    return finish(received, purpose, context.organizationId)
  } catch (error) {
    if (received !== undefined) await context.store.delete(received.objectKey)
    throw error
  }
}

function finish(
  received: ReceivedFile | undefined,
  purpose: string | undefined,
  organizationId: string,
): StoredUpload {
  if (received === undefined) throw missing('file')
  if (purpose === undefined) throw missing('purpose')
  const fault = received.check.finish(purpose)
  if (fault !== undefined) throw fault
  const { objectKey, filename, bytes, sha256 } = received
  return { id: fileIdOf(objectKey), organizationId, objectKey, filename, purpose, bytes, sha256 }
}

async function receiveFile(
  part: { readonly filename: string; readonly file: Readable },
  purpose: string | undefined,
  context: { store: ObjectStore; bytesMax: number; signal: AbortSignal },
): Promise<ReceivedFile> {
  const hash = createHash('sha256')
  const check = new JsonLinesCheck(purpose)
  let bytes = 0
  // Read only when the store asks: a fault then surfaces there, and nowhere else.
  async function* metered(): AsyncGenerator<Buffer> {
    for await (const chunk of part.file as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > context.bytesMax) throw storageLimitExceeded()
      hash.update(chunk)
      check.push(chunk)
      yield chunk
    }
  }
  const objectKey = `files/${randomId('file-')}`
  const body = Readable.from(metered(), { objectMode: false })
  await context.store.put(objectKey, body, { signal: context.signal })
  const filename = basename(part.filename.replaceAll('\\', '/')).slice(0, FILENAME_LENGTH_MAX)
  return { objectKey, filename: filename || 'file', bytes, sha256: hash.digest(), check }
}

/** The refusal of a file that does not fit into what the organization has left. */
export function storageLimitExceeded() {
  return failure.invalidRequest(
    "This file would exceed your organization's storage limit. Delete files that you no longer need.",
    { param: 'file', code: 'storage_limit_exceeded', shouldRetry: false },
  )
}

function fileIdOf(objectKey: string): string {
  return objectKey.slice('files/'.length)
}

function checkPurpose(purpose: string): string {
  if (PURPOSES.includes(purpose)) return purpose
  const names = PURPOSES.map((name) => `'${name}'`).join(', ')
  throw failure.invalidRequest(
    `Invalid value: '${purpose.slice(0, 64)}'. Supported values are: ${names}.`,
    {
      param: 'purpose',
      code: 'invalid_value',
    },
  )
}

function missing(field: string) {
  return failure.invalidRequest(`Missing required parameter: '${field}'.`, {
    param: field,
    code: 'missing_required_parameter',
  })
}

function expectedText(field: string) {
  return failure.invalidRequest(
    `Invalid type for '${field}': expected text, but got a file instead.`,
    {
      param: field,
      code: 'invalid_type',
    },
  )
}

function unexpectedField(field: string) {
  const name = field.slice(0, 64)
  return failure.invalidRequest(`Unknown parameter: '${name}'.`, {
    param: name,
    code: 'unknown_parameter',
  })
}
