import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'

import multipart from '@fastify/multipart'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { FastifyRequest } from 'fastify'

import { type FormFile, missingParameter, readForm } from '#api/http/form.ts'
import { PassThroughBytes, passThrough } from '#api/http/pass-through.ts'
import { bodyUnchecked } from '#api/http/validation.ts'
import { clientSignal } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { FileRow, UploadPartRow, UploadRow } from '#shared/db/schema/files.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import type { StoredUpload } from './file-store.ts'
import { type FileChange, presentFile } from './routes.ts'
import { FORM_OVERHEAD_BYTES_MAX, plainNameOf, storeFile } from './upload.ts'
import { ADD_PART, CANCEL_UPLOAD, COMPLETE_UPLOAD, CREATE_UPLOAD } from './upload-schemas.ts'
import { PARTS_MAX, partsBytesMax, type Uploads } from './upload-store.ts'
import { UploadsInFlight } from './uploads-in-flight.ts'

interface MultipartServices {
  readonly uploads: Uploads
  readonly store: ObjectStore
  readonly clock: Clock
  /** The storage quota of an organization in bytes. */
  readonly storageBytesMax: number
  /** Called after a file was stored. */
  onChange(change: FileChange): void
}

const PART_BYTES_MAX = 64 * 1024 * 1024
const SCOPE = { scope: 'files' } as const

/** `/uploads`: files that are sent in parts, each of which may be sent again. */
export function multipartUploadsPlugin(services: MultipartServices): FastifyPluginAsyncTypebox {
  return async (app) => {
    await app.register(multipart)
    const { uploads, store, storageBytesMax } = services
    const inFlight = new UploadsInFlight()

    app.post('/uploads', { schema: CREATE_UPLOAD, config: SCOPE }, async (request) => {
      const { filename, purpose, bytes, expires_after } = request.body
      const { organizationId } = callerOf(request)
      const upload = { organizationId, purpose, bytes, filename: plainNameOf(filename) }
      const retentionSeconds = expires_after?.seconds ?? null
      const row = { ...upload, id: randomId('upload_'), retentionSeconds }
      return presentUpload(await uploads.begin(row, storageBytesMax))
    })

    const options = {
      schema: ADD_PART,
      config: SCOPE,
      validatorCompiler: bodyUnchecked(app),
      bodyLimit: PART_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX,
    }
    app.post('/uploads/:upload_id/parts', options, async (request) => {
      const upload = await pendingUpload(services, request, request.params.upload_id)
      const part = await receivePart(request, { upload, store, inFlight })
      const row = await uploads.addPart(upload, part)
      if (row !== undefined) return presentPart(row)
      await store.delete(keyOf(part.id))
      await pendingUpload(services, request, upload.id)
      throw partsTooLarge(upload)
    })

    const joining = new Set<string>()
    const path = '/uploads/:upload_id/complete'
    app.post(path, { schema: COMPLETE_UPLOAD, config: SCOPE }, async (request, reply) => {
      const upload = await pendingUpload(services, request, request.params.upload_id)
      // Two concurrent completions would both store the bytes, and one file would be discarded.
      if (joining.has(upload.id)) throw failure.conflict('The upload is being completed.')
      joining.add(upload.id)
      try {
        const signal = clientSignal({ request, reply })
        const file = await complete(services, { upload, body: request.body, signal })
        services.onChange({ type: 'stored', file, request })
        return presentUpload(upload, file)
      } finally {
        joining.delete(upload.id)
      }
    })

    app.post(
      '/uploads/:upload_id/cancel',
      { schema: CANCEL_UPLOAD, config: SCOPE },
      async (request) => {
        const upload = await pendingUpload(services, request, request.params.upload_id)
        const cancelled = (await uploads.cancel(upload)) ?? notPending(upload)
        await deleteParts(services, upload)
        return presentUpload(cancelled)
      },
    )
  }
}

/** The upload that a request names, if it accepts parts. */
async function pendingUpload(
  { uploads }: MultipartServices,
  request: FastifyRequest,
  id: string,
): Promise<UploadRow> {
  const upload = await uploads.find(callerOf(request).organizationId, id)
  if (upload === undefined) {
    const message = `No such Upload object: ${id.slice(0, 100)}. An upload expires an hour after its creation.`
    throw failure.notFound(message, { param: 'upload_id' })
  }
  return upload.status === 'pending' ? upload : notPending(upload)
}

async function receivePart(
  request: FastifyRequest,
  {
    upload,
    store,
    inFlight,
  }: {
    readonly upload: UploadRow
    readonly store: ObjectStore
    readonly inFlight: UploadsInFlight
  },
): Promise<{ id: string; bytes: number }> {
  const id = randomId('part_')
  const own = inFlight.open(upload.id)
  const receive = async ({ stream, signal }: FormFile): Promise<number> => {
    let bytes = 0
    const metered = new PassThroughBytes(({ length }) => {
      bytes += length
      if (bytes > PART_BYTES_MAX) throw partTooLarge()
      if (!own.fits(length, partsBytesMax(upload))) throw partsTooLarge(upload)
    })
    await store.put(keyOf(id), passThrough(stream, metered), { signal })
    return bytes
  }
  try {
    const bytesMax = PART_BYTES_MAX + FORM_OVERHEAD_BYTES_MAX
    const rules = { fields: [], files: ['data'], bytesMax, tooLarge: partTooLarge, receive }
    const { data } = (await readForm<number>(request, rules)).files
    if (data === undefined) throw missingParameter('data')
    if (data === 0) throw refused('The part is empty.', 'data', 'empty_part')
    return { id, bytes: data }
  } catch (error) {
    await store.delete(keyOf(id))
    throw error
  } finally {
    own.end()
  }
}

interface Completion {
  readonly upload: UploadRow
  readonly body: { readonly part_ids: readonly string[]; readonly md5?: string | null }
  readonly signal: AbortSignal
}

/** Joins the parts to a file, which replaces them. */
async function complete(services: MultipartServices, completion: Completion): Promise<FileRow> {
  const { uploads, store } = services
  const { upload } = completion
  const file = await storeJoined(services, completion)
  try {
    const row = (await uploads.complete(upload, file)) ?? notPending(upload)
    await deleteParts(services, upload)
    return row
  } catch (error) {
    await store.delete(file.objectKey)
    throw error
  }
}

async function storeJoined(
  services: MultipartServices,
  { upload, body: { part_ids, md5 }, signal }: Completion,
): Promise<StoredUpload> {
  const { store } = services
  const { organizationId, purpose, filename, retentionSeconds } = upload
  const parts = await orderedParts(services, upload, part_ids)
  const hash = createHash('md5')
  const joined = Readable.from(joinParts(store, parts), { objectMode: false })
  const options = { purpose, store, signal, onChunk: (chunk: Buffer) => void hash.update(chunk) }
  const { check, ...stored } = await storeFile(joined, options)
  const fault =
    md5 === undefined || md5 === null || hash.digest('hex') === md5.toLowerCase()
      ? check.finish(purpose)
      : refused('The MD5 of the parts is another one.', 'md5', 'checksum_mismatch')
  if (fault !== undefined) {
    await store.delete(stored.objectKey)
    throw fault
  }
  const kept = retentionSeconds === null ? {} : { retentionSeconds }
  return { ...stored, organizationId, purpose, filename, ...kept }
}

async function* joinParts(
  store: ObjectStore,
  parts: readonly UploadPartRow[],
): AsyncGenerator<Buffer> {
  for (const { id } of parts) yield* (await store.get(keyOf(id))).body
}

/** The parts in the order of a completion. Throws unless they are all bytes of the upload. */
async function orderedParts(
  { uploads }: MultipartServices,
  upload: UploadRow,
  ids: readonly string[],
): Promise<UploadPartRow[]> {
  const stored = new Map((await uploads.parts(upload)).map((part) => [part.id, part]))
  const parts = ids.map((id, index) => {
    const part = stored.get(id)
    stored.delete(id)
    if (part !== undefined) return part
    const message = 'is not a part of this upload, or is named twice.'
    throw refused(`Invalid 'part_ids[${index}]': it ${message}`, 'part_ids', 'invalid_value')
  })
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0)
  if (bytes === upload.bytes) return parts
  const message = `The parts have ${bytes} bytes, the upload was created with ${upload.bytes}.`
  throw refused(message, 'part_ids', 'invalid_value')
}

async function deleteParts({ uploads, store }: MultipartServices, upload: UploadRow) {
  for (const { id } of await uploads.parts(upload)) await store.delete(keyOf(id))
}

/** Stored among the files, whose sweep deletes the objects of expired uploads. */
function keyOf(partId: string): string {
  return `files/${partId}`
}

function partTooLarge(): ServiceError {
  return refused(`A part has at most ${PART_BYTES_MAX} bytes.`, 'data', 'part_too_large')
}

function partsTooLarge({ bytes }: UploadRow): ServiceError {
  const message = `An upload of ${bytes} bytes takes at most twice as many, in at most ${PARTS_MAX} parts.`
  return refused(message, 'data', 'upload_too_large')
}

function notPending({ status }: UploadRow): never {
  const message = `The upload is ${status === 'pending' ? 'over' : status}.`
  throw refused(message, 'upload_id', 'upload_not_pending')
}

function refused(message: string, param: string, code: string): ServiceError {
  return failure.invalidRequest(message, { param, code, shouldRetry: false })
}

function presentUpload({ id, bytes, filename, purpose, ...upload }: UploadRow, file?: FileRow) {
  return {
    id,
    object: 'upload' as const,
    bytes,
    created_at: unixSeconds(upload.createdAt.getTime()),
    filename,
    purpose,
    status: file === undefined ? upload.status : 'completed',
    expires_at: unixSeconds(upload.expiresAt.getTime()),
    file: file === undefined ? null : presentFile(file),
  }
}

function presentPart({ id, uploadId, createdAt }: UploadPartRow) {
  const created_at = unixSeconds(createdAt.getTime())
  return { id, object: 'upload.part' as const, created_at, upload_id: uploadId }
}
