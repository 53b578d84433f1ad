import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { CancelledError, failure, type ServiceError } from '#shared/errors.ts'

import { networkOf } from './request.ts'

/** Smaller bodies fit into the buffers that every connection has. */
const LARGE_BYTES_MIN = 16 * 1024
/** The part that is left to owners without a large body in use. */
const RESERVED_SHARE = 0.25
/** The part that requests without a caller have, apart from those of callers. */
const PUBLIC_SHARE = 0.125
/** Of one owner; each waiting connection has buffers of some 64 KiB. */
const WAITING_MAX = 250
const WAIT_MS_MAX = 30_000
const RETRY_AFTER_SECONDS = 5

/** Room that a body has. It may be given back in part before it ends. */
interface Room {
  shrinkTo(bytes: number): void
  end(): void
}

interface Waiting {
  readonly owner: string
  readonly bytes: number
  enter(room: Room): void
}

/**
 * The bytes of bodies that one process holds. A body that finds no room is left unread, in the
 * buffers of its sender, until there is.
 */
export class BodyMemory {
  readonly #bytesMax: number
  #bytes = 0
  readonly #byOwner = new Map<string, number>()
  readonly #waiting = new Set<Waiting>()

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /**
   * Waits for room. Throws `overloaded` when too many of the owner wait, or when there is no room
   * in time, and `CancelledError` when the signal is aborted before.
   */
  async enter(owner: string, wanted: number, signal?: AbortSignal): Promise<Room> {
    const bytes = Math.min(wanted, this.#bytesMax)
    if (this.#fits(owner, bytes)) return this.#open(owner, bytes)
    const ofOwner = [...this.#waiting].filter((waiting) => waiting.owner === owner)
    if (ofOwner.length >= WAITING_MAX) throw noRoom()
    return new Promise((resolve, reject) => {
      const leave = (error: Error): void => {
        this.#waiting.delete(waiting)
        clearTimeout(timer)
        reject(error)
      }
      const timer = setTimeout(() => leave(noRoom()), WAIT_MS_MAX)
      signal?.addEventListener('abort', () => leave(new CancelledError()), { once: true })
      const waiting: Waiting = {
        owner,
        bytes,
        enter(room) {
          clearTimeout(timer)
          resolve(room)
        },
      }
      this.#waiting.add(waiting)
    })
  }

  #fits(owner: string, bytes: number): boolean {
    const share = this.#byOwner.has(owner) ? 1 - RESERVED_SHARE : 1
    return this.#bytes + bytes <= this.#bytesMax * share
  }

  #open(owner: string, bytes: number): Room {
    let held = 0
    const hold = (wanted: number): void => {
      const more = wanted - held
      held = wanted
      this.#bytes += more
      const sum = (this.#byOwner.get(owner) ?? 0) + more
      if (sum === 0) this.#byOwner.delete(owner)
      else this.#byOwner.set(owner, sum)
      if (more < 0) this.#admit()
    }
    hold(bytes)
    return {
      shrinkTo(actual) {
        if (actual < held) hold(actual)
      },
      end: () => hold(0),
    }
  }

  /** In the order of arrival; owners that have their share do not hold up others. */
  #admit(): void {
    for (const waiting of this.#waiting) {
      const { owner, bytes, enter } = waiting
      if (!this.#fits(owner, bytes)) continue
      this.#waiting.delete(waiting)
      enter(this.#open(owner, bytes))
    }
  }
}

/** The room of a request, and whether its jobs go on without its client. */
interface Held {
  readonly room: Room
  isDurable: boolean
}

/**
 * Bounds the memory that bodies have from their first byte to the end of their answer. Forms of
 * `/v1` are streamed and need none; requests of background jobs have a bound of their own.
 */
export function limitBodyMemory(app: FastifyInstance, bytesMax: number): void {
  const ofCallers = new BodyMemory(bytesMax * (1 - PUBLIC_SHARE))
  const ofPublic = new BodyMemory(bytesMax * PUBLIC_SHARE)
  const rooms = new WeakMap<FastifyRequest, Held>()
  const enter = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const bytes = bytesMaxOf(request)
    const { caller } = request.context
    const left = new AbortController()
    reply.raw.once('close', () => left.abort())
    const room = await (caller === undefined
      ? ofPublic.enter(networkOf(request), bytes, left.signal)
      : ofCallers.enter(caller.organizationId, bytes, left.signal))
    const held: Held = { room, isDurable: false }
    rooms.set(request, held)
    if (left.signal.aborted) room.end()
    reply.raw.once('close', () => {
      if (!held.isDurable) room.end()
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
    const held = rooms.get(request)
    const { durable } = request.context
    if (held !== undefined && durable !== undefined) {
      held.isDurable = true
      durable.onOver(() => held.room.end())
    }
    done()
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

/** A chunked body states no length: it has the room of the largest one until its end. */
function shrinkAtEnd({ headers, raw }: FastifyRequest, room: Room): void {
  if (headers['content-length'] !== undefined) return
  const before = raw.socket.bytesRead
  raw.once('end', () => {
    const bytes = raw.socket.bytesRead - before
    room.shrinkTo(bytes < LARGE_BYTES_MIN ? 0 : bytes)
  })
}

function noRoom(): ServiceError {
  return failure.overloaded('The service has too many large requests at the moment.', {
    code: 'server_is_overloaded',
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    shouldRetry: true,
  })
}
