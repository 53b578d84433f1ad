import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { BodyMemory, type BodyRoom } from './body-memory.ts'
import { networkOf } from './request.ts'

/** Smaller bodies fit into the buffers that every connection has. */
const LARGE_BYTES_MIN = 16 * 1024
/** The share that all requests without a caller have, separate from callers. */
const PUBLIC_SHARE = 0.125

/**
 * Bounds the memory of bodies from their first byte to the end of their answer. Forms of `/v1` are
 * streamed and need none; requests of background jobs have a limit of their own.
 */
export function limitBodyMemory(app: FastifyInstance, bytesMax: number): void {
  const ofCallers = new BodyMemory(bytesMax * (1 - PUBLIC_SHARE))
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
    // A job that continues after its client has left keeps the room of its body.
    reply.raw.once('close', () => {
      if (request.context.durable === undefined) room.end()
    })
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

/** The bytes that the body of a request may take; 0 if the body is refused or streamed. */
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
