import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { CONTENTS_BYTES_MAX } from '#shared/stored-content.ts'

import { BodyMemory, type BodyRoom } from './body-memory.ts'
import { networkOf, whenOver } from './request.ts'

/** Smaller bodies fit into the buffers that every connection has. */
const LARGE_BYTES_MIN = 16 * 1024
/** The share that all requests without a caller have, separate from callers. */
const PUBLIC_SHARE = 0.125
/** The part that stored contents have, apart from bodies. */
const CONTENTS_SHARE = 0.25
/** Requests of one organization that wait to read stored contents; they have been read. */
const READERS_MAX = 10_000

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Set where the answer is made of stored contents, for some bodies or for all. */
    readsContents?: true | ((body: unknown) => boolean)
  }
}

/**
 * Bounds the memory that bodies have from their first byte to the end of their answer, and that of
 * stored contents which a request reads. Forms of `/v1` are streamed and need none; requests of
 * background jobs have a bound of their own.
 */
export function limitBodyMemory(app: FastifyInstance, bytesMax: number): void {
  limitContents(app, bytesMax * CONTENTS_SHARE)
  const ofCallers = new BodyMemory(bytesMax * (1 - PUBLIC_SHARE - CONTENTS_SHARE))
  const ofPublic = new BodyMemory(bytesMax * PUBLIC_SHARE)
  const enter = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const bytes = bytesMaxOf(request)
    const { caller } = request.context
    const left = new AbortController()
    reply.raw.once('close', () => left.abort())
    const room = await (caller === undefined
      ? ofPublic.enter(networkOf(request), bytes, left.signal)
      : ofCallers.enter(caller.organizationId, bytes, left.signal))
    request.context.bodyRoom = room
    if (left.signal.aborted) room.end()
    endWith(request, reply, room)
    shrinkAtEnd(request, room)
  }
  app.addHook('preParsing', (request, reply, payload, done) => {
    if (bytesMaxOf(request) < LARGE_BYTES_MIN) return done(null, payload)
    enter(request, reply).then(
      () => done(null, payload),
      (error: Error) => done(error),
    )
  })
  app.addHook('preHandler', (request, _reply, done) => {
    const { bodyRoom, durable } = request.context
    if (bodyRoom !== undefined) durable?.onOver(() => bodyRoom.end())
    done()
  })
}

/**
 * A request holds as much as one may read while it reads, then what it has read, to the end of its
 * answer. A small request may have large contents: a conversation, or a page of them.
 */
function limitContents(app: FastifyInstance, bytesMax: number): void {
  const contents = new BodyMemory(bytesMax, READERS_MAX)
  app.addHook('preHandler', async (request, reply) => {
    const { readsContents } = request.routeOptions.config
    const { caller, durable } = request.context
    if (readsContents === undefined || caller === undefined) return
    if (readsContents !== true && !readsContents(request.body)) return
    const left = new AbortController()
    reply.raw.once('close', () => left.abort())
    const room = await contents.enter(caller.organizationId, CONTENTS_BYTES_MAX, left.signal)
    request.context.contentsRoom = room
    if (left.signal.aborted) room.end()
    endWith(request, reply, room)
    durable?.onOver(() => room.end())
  })
  app.addHook('onSend', (request, _reply, payload, done) => {
    const { contentsRoom } = request.context
    if (typeof payload === 'string' || Buffer.isBuffer(payload)) {
      contentsRoom?.shrinkTo(payload.length)
    }
    done(null, payload)
  })
}

/** A job that goes on after its client has left keeps its room. */
function endWith(request: FastifyRequest, reply: FastifyReply, room: BodyRoom): void {
  // Answers to requests of this process itself have no connection that closes.
  whenOver(reply.raw, () => {
    if (request.context.durable === undefined) room.end()
  })
}

/** The bytes that the body of a request may take; 0 for one that is refused or streamed. */
function bytesMaxOf({ headers, routeOptions, context }: FastifyRequest): number {
  const { bodyLimit = 0, config } = routeOptions
  if (context.stored !== undefined) return 0
  const isForm = headers['content-type']?.startsWith('multipart/') === true
  if (isForm && config?.scope !== undefined) return 0
  const length = headers['content-length']
  if (length === undefined) return headers['transfer-encoding'] === undefined ? 0 : bodyLimit
  return Number(length) > bodyLimit ? 0 : Number(length)
}

/** A chunked body states no length, so it takes the room of the largest one until its end. */
function shrinkAtEnd({ headers, raw }: FastifyRequest, room: BodyRoom): void {
  if (headers['content-length'] !== undefined) return
  const before = raw.socket.bytesRead
  raw.once('end', () => {
    const bytes = raw.socket.bytesRead - before
    room.shrinkTo(bytes < LARGE_BYTES_MIN ? 0 : bytes)
  })
}
