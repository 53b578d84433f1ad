import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { CONTENTS_BYTES_MAX } from '#shared/stored-content.ts'

import { BodyMemory, type BodyRoom, readsContents } from './body-memory.ts'
import { networkOf, whenOver } from './request.ts'

/** Smaller bodies fit into the buffers that every connection has. */
const LARGE_BYTES_MIN = 16 * 1024
/** The share that all requests without a caller have, separate from callers. */
const PUBLIC_SHARE = 0.125
/** The share reserved for stored content. */
const CONTENTS_SHARE = 0.25
/** Requests of one organization that may wait to read stored content; their bodies are read. */
const READERS_MAX = 10_000

/**
 * Limits the memory of request bodies, from their first byte to the end of the answer, and of the
 * stored content that requests read. Form data of `/v1` is streamed and not counted; requests of
 * background jobs have their own limit.
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
 * Limits the memory of stored content, because a small request may read a long conversation or a
 * page of them. A request reserves the maximum while it reads, and then the size of its content
 * until its answer ends.
 */
function limitContents(app: FastifyInstance, bytesMax: number): void {
  const contents = new BodyMemory(bytesMax, READERS_MAX)
  app.addHook('preHandler', async (request, reply) => {
    const reads = readsContents(request)
    const { caller, durable } = request.context
    if (reads === false || caller === undefined) return
    const reserve = async (): Promise<BodyRoom> => {
      const left = new AbortController()
      reply.raw.once('close', () => left.abort())
      const room = await contents.enter(caller.organizationId, CONTENTS_BYTES_MAX, left.signal)
      if (left.signal.aborted || reply.raw.destroyed) room.end()
      endWith(request, reply, room)
      durable?.onOver(() => room.end())
      return room
    }
    request.context.reserveContents = reserve
    if (reads === true) request.context.contentsRoom = await reserve()
  })
  app.addHook('onSend', (request, _reply, payload, done) => {
    const { contentsRoom } = request.context
    if (typeof payload === 'string' || Buffer.isBuffer(payload)) {
      contentsRoom?.shrinkTo(payload.length)
    }
    done(null, payload)
  })
}

/** Releases the memory when the answer ends, or later, with a job that continues without client. */
function endWith(request: FastifyRequest, reply: FastifyReply, room: BodyRoom): void {
  // Requests that the process sends to itself have no connection, so 'close' is not enough.
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
