import type { FastifyRequest } from 'fastify'

import { CancelledError, failure, type ServiceError } from '#shared/errors.ts'

/** The share that is reserved for owners without a large body in use. */
const RESERVED_SHARE = 0.25
/** The most bodies of one owner that wait; each waiting connection has buffers of some 64 KiB. */
const WAITING_MAX = 250
const WAIT_MS_MAX = 30_000
const RETRY_AFTER_SECONDS = 5

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whether the route reads stored content; `later` means while it answers. */
    readsContents?: true | 'later' | ((body: unknown) => boolean | 'later')
  }
}

/** The room that a body takes. It may be released in part before the body ends. */
export interface BodyRoom {
  shrinkTo(bytes: number): void
  end(): void
}

interface Waiting {
  readonly bytes: number
  enter(room: BodyRoom): void
}

/**
 * Limits the bytes of request bodies, or of other content, in the memory of one process. Bodies
 * that do not fit wait unread, in the buffers of their senders, until memory is free.
 */
export class BodyMemory {
  readonly #bytesMax: number
  readonly #waitingMax: number
  #bytes = 0
  readonly #byOwner = new Map<string, number>()
  readonly #waiting = new Map<string, Set<Waiting>>()

  constructor(bytesMax: number, waitingMax = WAITING_MAX) {
    this.#bytesMax = bytesMax
    this.#waitingMax = waitingMax
  }

  /**
   * Waits for room. Throws `overloaded` when too many bodies of the owner wait or no room becomes
   * free in time, and `CancelledError` when the signal aborts first.
   */
  async enter(owner: string, wanted: number, signal?: AbortSignal): Promise<BodyRoom> {
    const bytes = Math.min(wanted, this.#bytesMax)
    if (this.#fits(owner, bytes)) return this.#open(owner, bytes)
    const ofOwner = this.#waiting.get(owner) ?? new Set()
    if (ofOwner.size >= this.#waitingMax) throw noRoom()
    this.#waiting.set(owner, ofOwner)
    return new Promise((resolve, reject) => {
      const leave = (error: Error): void => {
        this.#remove(owner, waiting)
        clearTimeout(timer)
        reject(error)
      }
      const timer = setTimeout(() => leave(noRoom()), WAIT_MS_MAX)
      signal?.addEventListener('abort', () => leave(new CancelledError()), { once: true })
      const waiting: Waiting = {
        bytes,
        enter(room) {
          clearTimeout(timer)
          resolve(room)
        },
      }
      ofOwner.add(waiting)
    })
  }

  #fits(owner: string, bytes: number): boolean {
    const share = this.#byOwner.has(owner) ? 1 - RESERVED_SHARE : 1
    return this.#bytes + bytes <= this.#bytesMax * share
  }

  #open(owner: string, bytes: number): BodyRoom {
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

  /** Admits one of each owner in rotation; an owner at its limit does not delay others. */
  #admit(): void {
    for (let hasEntered = true; hasEntered; ) {
      hasEntered = false
      for (const [owner, [first]] of this.#waiting) {
        if (first === undefined || !this.#fits(owner, first.bytes)) continue
        this.#remove(owner, first)
        first.enter(this.#open(owner, first.bytes))
        hasEntered = true
      }
    }
  }

  #remove(owner: string, waiting: Waiting): void {
    const ofOwner = this.#waiting.get(owner)
    ofOwner?.delete(waiting)
    if (ofOwner?.size === 0) this.#waiting.delete(owner)
  }
}

function noRoom(): ServiceError {
  return failure.overloaded('The service has too many large requests at the moment.', {
    code: 'server_is_overloaded',
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    shouldRetry: true,
  })
}

/** Whether the route of a request declares that it reads stored content for this body. */
export function readsContents({ routeOptions, body }: FastifyRequest): boolean | 'later' {
  const { readsContents: declared = false } = routeOptions.config
  return typeof declared === 'function' ? declared(body) : declared
}
