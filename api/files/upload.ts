import { createHash } from 'node:crypto'
import { basename } from 'node:path'
import type { Readable } from 'node:stream'

import type { FastifyRequest } from 'fastify'

import { type FormFile, missingParameter, readForm } from '#api/http/form.ts'
import { PassThroughBytes, passThrough } from '#api/http/pass-through.ts'
import { failure } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { EXPIRY_FIELDS, retentionSeconds } from './expiry.ts'
import type { StoredUpload } from './file-store.ts'
import { JsonLinesCheck, PURPOSES } from './json-lines.ts'
import type { UploadInFlight } from './uploads-in-flight.ts'

const FILENAME_LENGTH_MAX = 255
/** Allowance for boundaries, headers and other fields of the form, in bytes. */
export const FORM_OVERHEAD_BYTES_MAX = 64 * 1024

interface StoredBytes {
  /** The id of the file. */
  readonly id: string
  readonly objectKey: string
  readonly bytes: number
  readonly sha256: Buffer
  readonly check: JsonLinesCheck
}

interface ReceivedFile extends StoredBytes {
  readonly filename: string
}

/** The destination and the size limit of uploads. */
interface UploadContext {
  readonly organizationId: string
  readonly store: ObjectStore
  /** The remaining quota; a longer file is refused. */
  readonly bytesMax: number
  readonly signal: AbortSignal
  readonly inFlight: UploadInFlight
}

/**
 * Streams the file of a form into the store while counting, hashing and checking its bytes. Fields
 * may come in any order. On any fault, no file is stored and the fault is thrown.
 */
export async function receiveUpload(
  request: FastifyRequest,
  context: UploadContext,
): Promise<StoredUpload> {
  let received: ReceivedFile | undefined
  try {
    const { fields } = await readForm<ReceivedFile>(request, {
      fields: ['purpose', ...EXPIRY_FIELDS],
      files: ['file'],
      bytesMax: context.bytesMax + FORM_OVERHEAD_BYTES_MAX,
      tooLarge: storageLimitExceeded,
      receive: async (file, _name, { purpose }) => {
        received = await receiveFile(file, purpose as string | undefined, context)
        return received
      },
    })
    const purpose = fields.purpose as string | undefined
    if (received === undefined) throw missingParameter('file')
    if (purpose === undefined) throw missingParameter('purpose')
    const kept = retentionSeconds(fields)
    return { ...finish(received, checkPurpose(purpose), context.organizationId), ...kept }
  } catch (error) {
    if (received !== undefined) await context.store.delete(received.objectKey)
    throw error
  } finally {
    context.inFlight.end()
  }
}

function finish(received: ReceivedFile, purpose: string, organizationId: string): StoredUpload {
  const fault = received.check.finish(purpose)
  if (fault !== undefined) throw fault
  const { check: _, ...file } = received
  return { ...file, organizationId, purpose }
}

async function receiveFile(
  { filename, stream, signal }: FormFile,
  purpose: string | undefined,
  { store, bytesMax, signal: clientSignal, inFlight }: UploadContext,
): Promise<ReceivedFile> {
  // When the purpose precedes the file, a wrong one is refused before a byte is stored.
  if (purpose !== undefined) checkPurpose(purpose)
  const stored = await storeFile(stream, {
    purpose,
    store,
    signal: AbortSignal.any([clientSignal, signal]),
    onChunk: ({ length }) => {
      if (!inFlight.fits(length, bytesMax)) throw storageLimitExceeded()
    },
  })
  return { ...stored, filename: plainNameOf(filename) }
}

/** Stores a stream as the bytes of a new file while counting, hashing and checking them. */
export async function storeFile(
  stream: Readable,
  {
    purpose,
    store,
    signal,
    onChunk,
  }: {
    readonly purpose: string | undefined
    readonly store: ObjectStore
    readonly signal: AbortSignal
    /** Called with each chunk; throws to end the file. */
    onChunk(chunk: Buffer): void
  },
): Promise<StoredBytes> {
  const hash = createHash('sha256')
  const check = new JsonLinesCheck(purpose)
  let bytes = 0
  const metered = new PassThroughBytes((chunk) => {
    bytes += chunk.length
    onChunk(chunk)
    hash.update(chunk)
    check.push(chunk)
  })
  const id = randomId('file-')
  const objectKey = `files/${id}`
  await store.put(objectKey, passThrough(stream, metered), { signal })
  return { id, objectKey, bytes, sha256: hash.digest(), check }
}

/** The name of a file without folders. */
export function plainNameOf(filename: string): string {
  const name = basename(filename.replaceAll('\\', '/')).slice(0, FILENAME_LENGTH_MAX)
  return name || 'file'
}

/** The error for a file that exceeds the remaining quota. */
export function storageLimitExceeded() {
  return failure.invalidRequest(
    "This file would exceed your organization's limit of stored bytes or of files. Delete files that you no longer need.",
    { param: 'file', code: 'storage_limit_exceeded', shouldRetry: false },
  )
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
