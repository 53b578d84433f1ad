import { createHash } from 'node:crypto'
import { basename } from 'node:path'

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

interface ReceivedFile {
  readonly objectKey: string
  readonly filename: string
  readonly bytes: number
  readonly sha256: Buffer
  readonly check: JsonLinesCheck
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
 * may come in any order. On any fault, nothing is stored and the fault is thrown.
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
  const { objectKey, filename, bytes, sha256 } = received
  return { id: fileIdOf(objectKey), organizationId, objectKey, filename, purpose, bytes, sha256 }
}

async function receiveFile(
  { filename, stream, signal }: FormFile,
  purpose: string | undefined,
  { store, bytesMax, signal: clientSignal, inFlight }: UploadContext,
): Promise<ReceivedFile> {
  // When the purpose precedes the file, a wrong one is refused before a byte is stored.
  if (purpose !== undefined) checkPurpose(purpose)
  const hash = createHash('sha256')
  const check = new JsonLinesCheck(purpose)
  let bytes = 0
  const metered = new PassThroughBytes((chunk) => {
    bytes += chunk.length
    if (!inFlight.fits(chunk.length, bytesMax)) throw storageLimitExceeded()
    hash.update(chunk)
    check.push(chunk)
  })
  const objectKey = `files/${randomId('file-')}`
  await store.put(objectKey, passThrough(stream, metered), {
    signal: AbortSignal.any([clientSignal, signal]),
  })
  const name = basename(filename.replaceAll('\\', '/')).slice(0, FILENAME_LENGTH_MAX)
  return { objectKey, filename: name || 'file', bytes, sha256: hash.digest(), check }
}

/** The error for a file that exceeds the remaining quota. */
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
