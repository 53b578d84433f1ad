import { Readable } from 'node:stream'

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { failure } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { parseRange } from './byte-range.ts'
import { PassThroughBytes, passThrough } from './pass-through.ts'

/** A download of stored bytes. */
export interface Download {
  readonly store: Pick<ObjectStore, 'get' | 'head'>
  readonly key: string
  /** Their number, when it is known without asking the store. */
  readonly bytes?: number
  /** The entity tag; it changes with the bytes. */
  readonly etag: string
  readonly headers: Readonly<Record<string, string>>
}

interface Http {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
}

/**
 * Sends stored bytes as a stream: all of them, one range, headers only, or 304 when the client
 * already has them (RFC 9110, sections 13 and 14). A request for several ranges receives the whole.
 */
export async function sendStored(http: Http, download: Download): Promise<FastifyReply> {
  const { request, reply } = http
  const { store, key, etag } = download
  const { method, headers } = request
  if (isKnown(headers['if-none-match'], etag)) return begin(reply, download).code(304).send()
  if (method === 'HEAD') return sendHead(reply, download)
  // A range helps only a client that has other parts of the same version.
  const isSame = (headers['if-range'] ?? etag) === etag
  if (isSame && headers.range !== undefined) return sendRange(reply, download, headers.range)
  const { body, totalBytes } = await store.get(key)
  return begin(reply, download, totalBytes).send(passThrough(body, new PassThroughBytes()))
}

// A HEAD request has no range.
async function sendHead(reply: FastifyReply, download: Download): Promise<FastifyReply> {
  // Fastify sets the length itself only for bodies that are not streams.
  return begin(reply, download, await sizeOf(download)).send(Readable.from([]))
}

async function sendRange(
  reply: FastifyReply,
  download: Download,
  wanted: string,
): Promise<FastifyReply> {
  const { store, key } = download
  const bytes = await sizeOf(download)
  const range = parseRange(wanted, bytes)
  if (range === 'unsatisfiable') {
    reply.header('content-range', `bytes */${bytes}`)
    throw failure.rangeNotSatisfiable(`There are ${bytes} bytes, and none in this range.`)
  }
  const { body } = await store.get(key, range)
  if (range === undefined) begin(reply, download, bytes)
  else {
    begin(reply, download, range.end - range.start + 1).code(206)
    reply.header('content-range', `bytes ${range.start}-${range.end}/${bytes}`)
  }
  return reply.send(passThrough(body, new PassThroughBytes()))
}

/** The headers of every successful answer. */
function begin(reply: FastifyReply, { etag, headers }: Download, length?: number): FastifyReply {
  reply.headers({ ...headers, etag, 'accept-ranges': 'bytes' })
  return length === undefined ? reply : reply.header('content-length', length)
}

async function sizeOf({ store, key, bytes }: Download): Promise<number> {
  const known = bytes ?? (await store.head(key))?.bytes
  if (known === undefined) throw failure.notFound('No such object.')
  return known
}

/** Whether `If-None-Match` contains this entity tag. */
export function isKnown(ifNoneMatch: string | undefined, etag: string): boolean {
  const known = ifNoneMatch?.split(',').map((tag) => tag.trim()) ?? []
  return known.some((tag) => tag === '*' || tag.replace(/^W\//, '') === etag)
}

/**
 * A HEAD request must not read the body: Fastify would read a file of gigabytes to its end for an
 * answer without a body.
 */
export function leaveBodiesUnread(app: FastifyInstance): void {
  app.addHook('onSend', async (request, _reply, payload) => {
    if (request.method !== 'HEAD' || !(payload instanceof Readable)) return payload
    payload.destroy()
    return Readable.from([])
  })
}
