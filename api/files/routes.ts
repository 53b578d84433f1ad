import type { IncomingMessage, ServerResponse } from 'node:http'

import multipart from '@fastify/multipart'
import type { FastifyPluginAsyncTypebox, TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyBaseLogger, FastifyInstance, FastifyRequest, RawServerDefault } from 'fastify'

import { sendStored } from '#api/http/stored-bytes.ts'
import { bodyUnchecked } from '#api/http/validation.ts'
import { callerOf, contentsReaderOf } from '#api/v1/request-context.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { FileRow } from '#shared/db/schema/files.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice } from '#shared/schemas.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import type { FilePage, Files } from './file-store.ts'
import { PURPOSES } from './json-lines.ts'
import { FORM_OVERHEAD_BYTES_MAX, receiveUpload, storageLimitExceeded } from './upload.ts'
import { UploadsInFlight } from './uploads-in-flight.ts'

/** A file that was stored or deleted. */
export interface FileChange {
  readonly type: 'stored' | 'deleted'
  readonly file: FileRow
  readonly request: FastifyRequest
}

interface FileServices {
  readonly files: Files
  readonly store: ObjectStore
  readonly clock: Clock
  /** The storage quota of an organization in bytes. */
  readonly storageBytesMax: number
  /** Called after a file was stored or deleted. */
  onChange(change: FileChange): void
}

const LIMIT_MAX = 10_000
/** `/files`: upload, list, retrieve, download, delete. */
export function filesPlugin(services: FileServices): FastifyPluginAsyncTypebox {
  return async (app) => {
    await app.register(multipart)
    registerUpload(app, services)
    registerList(app, services)
    registerContent(app, services)
    registerDelete(app, services)
  }
}

type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>

function registerUpload(app: App, services: FileServices): void {
  const { files, store, storageBytesMax } = services
  const inFlight = new UploadsInFlight()
  const options = {
    schema: UPLOAD,
    config: SCOPE,
    validatorCompiler: bodyUnchecked(app),
    bodyLimit: storageBytesMax + FORM_OVERHEAD_BYTES_MAX,
  }
  app.post('/files', options, async (request, reply) => {
    const { organizationId } = callerOf(request)
    const bytesMax = storageBytesMax - (await files.usedBytes(organizationId))
    const announced = Number(request.headers['content-length'] ?? 0)
    if (announced - FORM_OVERHEAD_BYTES_MAX > bytesMax) {
      // The rest of the body stays unread, so the connection cannot be reused.
      reply.header('connection', 'close')
      throw storageLimitExceeded()
    }
    const abort = new AbortController()
    request.raw.on('aborted', () => abort.abort())
    const { signal } = abort
    const context = { organizationId, store, bytesMax, signal }
    const upload = await receiveUpload(request, {
      ...context,
      inFlight: inFlight.open(organizationId),
    })
    const file = await files.publish(upload, storageBytesMax)
    if (file === undefined) {
      await store.delete(upload.objectKey)
      throw storageLimitExceeded()
    }
    services.onChange({ type: 'stored', file, request })
    return presentFile(file)
  })
}

function registerList(app: App, { files }: FileServices): void {
  app.get(
    '/files',
    { schema: LIST, config: { ...SCOPE, readsContents: true } },
    async (request) => {
      const { purpose, limit = LIMIT_MAX, order = 'desc', after } = request.query
      const page: FilePage = {
        limit,
        order,
        ...(purpose !== undefined && { purpose }),
        ...(after !== undefined && { after }),
      }
      const { organizationId } = callerOf(request)
      if (after !== undefined && (await files.find(organizationId, after)) === undefined) {
        noSuchFile(after, 'after')
      }
      const { rows, hasMore } = await files.list(contentsReaderOf(request), page)
      const data = rows.map(presentFile)
      return {
        object: 'list' as const,
        data,
        first_id: data[0]?.id ?? null,
        last_id: data.at(-1)?.id ?? null,
        has_more: hasMore,
      }
    },
  )
}

function registerContent(app: App, { files, store }: FileServices): void {
  app.get('/files/:file_id', { schema: RETRIEVE, config: SCOPE }, async (request) => {
    const { file_id } = request.params
    return presentFile(
      (await files.find(callerOf(request).organizationId, file_id)) ?? noSuchFile(file_id),
    )
  })

  app.get('/files/:file_id/content', { schema: CONTENT, config: SCOPE }, async (request, reply) => {
    const { file_id } = request.params
    const file =
      (await files.find(callerOf(request).organizationId, file_id)) ?? noSuchFile(file_id)
    return sendStored(
      { request, reply },
      {
        store,
        key: file.objectKey,
        bytes: file.bytes,
        etag: `"${file.sha256.toString('hex')}"`,
        headers: {
          'content-type': 'application/octet-stream',
          'content-disposition': asAttachment(file.filename),
        },
      },
    )
  })
}

function registerDelete(app: App, services: FileServices): void {
  const { files, store } = services
  app.delete('/files/:file_id', { schema: DELETE, config: SCOPE }, async (request) => {
    const { organizationId } = callerOf(request)
    const { file_id } = request.params
    const file = (await files.remove(organizationId, file_id)) ?? noSuchFile(file_id)
    await store.delete(file.objectKey)
    services.onChange({ type: 'deleted', file, request })
    return { id: file_id, object: 'file' as const, deleted: true }
  })
}

/** A file in OpenAI's format. */
export function presentFile(file: FileRow) {
  return {
    id: file.id,
    object: 'file' as const,
    bytes: file.bytes,
    created_at: unixSeconds(file.createdAt.getTime()),
    filename: file.filename,
    purpose: file.purpose,
    status: 'processed',
    status_details: null,
    ...(file.expiresAt !== null && { expires_at: unixSeconds(file.expiresAt.getTime()) }),
  }
}

function noSuchFile(id: string, param = 'id'): never {
  throw failure.notFound(`No such File object: ${id.slice(0, 100)}`, { param })
}

/** The schema of a file. */
export const FILE = Type.Object({
  id: Type.String(),
  object: Type.Literal('file'),
  bytes: Type.Integer(),
  created_at: Type.Integer({ description: 'A time in Unix seconds.' }),
  filename: Type.String(),
  purpose: Type.String(),
  status: Type.String(),
  status_details: Type.Null(),
  expires_at: Type.Optional(Type.Integer({ description: 'A time in Unix seconds.' })),
})
const FILE_ID = Type.Object({ file_id: Type.String({ minLength: 1, maxLength: 200 }) })
const SCOPE = { scope: 'files' } as const
const TAGS = ['Files']
const UPLOAD = {
  tags: TAGS,
  summary: 'Upload a file',
  description:
    'Form data with `file` and `purpose`. Files for JSON-lines purposes are checked line by line. `expires_after[anchor]` (always `created_at`) and `expires_after[seconds]` (3600 to 2592000) set a time after which the file is no longer available.',
  consumes: ['multipart/form-data'],
  body: {
    type: 'object',
    required: ['file', 'purpose'],
    properties: {
      file: { type: 'string', format: 'binary' },
      purpose: { type: 'string', enum: PURPOSES },
      'expires_after[anchor]': { type: 'string', enum: ['created_at'] },
      'expires_after[seconds]': { type: 'integer', minimum: 3600, maximum: 2_592_000 },
    },
  },
  response: { 200: FILE },
}
const LIST = {
  tags: TAGS,
  summary: 'List the files of the organization',
  querystring: Type.Object(
    {
      purpose: Type.Optional(Type.String({ enum: [...PURPOSES, 'batch_output'] })),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: LIMIT_MAX })),
      order: Type.Optional(choice(['asc', 'desc'])),
      after: Type.Optional(Type.String({ maxLength: 200 })),
    },
    { additionalProperties: false },
  ),
  response: {
    200: Type.Object({
      object: Type.Literal('list'),
      data: Type.Array(FILE),
      first_id: Type.Union([Type.String(), Type.Null()]),
      last_id: Type.Union([Type.String(), Type.Null()]),
      has_more: Type.Boolean(),
    }),
  },
}
const RETRIEVE = {
  tags: TAGS,
  summary: 'Retrieve a file',
  params: FILE_ID,
  response: { 200: FILE },
}
const CONTENT = {
  tags: TAGS,
  summary: 'Download the bytes of a file',
  params: FILE_ID,
  produces: ['application/octet-stream'],
}
const DELETE = {
  tags: TAGS,
  summary: 'Delete a file',
  params: FILE_ID,
  response: {
    200: Type.Object({ id: Type.String(), object: Type.Literal('file'), deleted: Type.Boolean() }),
  },
}

/** Characters that reverse the display of a name: `exe.gpj` looks like `jpg.exe`. */
const BIDI_CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/**
 * The `Content-Disposition` of a download (RFC 6266). `curl -OJ` and older clients read only the
 * plain name, in which an underscore replaces every unsafe character.
 */
export function asAttachment(filename: string): string {
  const plain = filename.replaceAll(/[^\x20-\x7e]|["%\\]/g, '_')
  const exact = encodeURIComponent(filename.replaceAll(BIDI_CONTROLS, '_')).replaceAll(
    /['()*]/g,
    (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename="${plain}"; filename*=UTF-8''${exact}`
}
