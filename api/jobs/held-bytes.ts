import { failure, type ServiceError } from '#shared/errors.ts'

const RETRY_AFTER_SECONDS = 5

/** The bytes of one request. */
interface Holding {
  /** Counts more bytes. Throws when they do not fit. */
  add(bytes: number): void
  /** The same for bytes that are there already. */
  addStored(bytes: number): void
  end(): void
}

/**
 * The bytes that the unfinished requests of one process hold elsewhere: inputs in Redis, or media
 * in object storage. An organization may have as many of them as are free: a half when it is alone,
 * a third when there are two. So there is always room for the first request of another one.
 */
export class HeldBytes {
  readonly #bytesMax: number
  #bytes = 0
  readonly #byOrganization = new Map<string, number>()

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  open(organizationId: string): Holding {
    let held = 0
    const addStored = (bytes: number): void => {
      held += bytes
      this.#count(organizationId, bytes)
    }
    return {
      add: (bytes) => {
        const most = Math.floor(this.#bytesMax / 2)
        if (held + bytes > most) throw tooLarge(held + bytes, most)
        const sum = (this.#byOrganization.get(organizationId) ?? 0) + bytes
        if (sum > this.#bytesMax - this.#bytes) throw noRoom(organizationId)
        addStored(bytes)
      },
      addStored,
      end: () => addStored(-held),
    }
  }

  #count(organizationId: string, bytes: number): void {
    this.#bytes += bytes
    const sum = (this.#byOrganization.get(organizationId) ?? 0) + bytes
    if (sum === 0) this.#byOrganization.delete(organizationId)
    else this.#byOrganization.set(organizationId, sum)
  }
}

function tooLarge(bytes: number, bytesMax: number): ServiceError {
  return failure.tooLarge(
    `The input of this request has ${bytes} bytes, with all that it refers to; at most ${bytesMax} bytes are allowed.`,
    { code: 'request_too_large' },
  )
}

function noRoom(organizationId: string): ServiceError {
  return failure.rateLimited(
    `Rate limit reached for organization ${organizationId} on bytes of unfinished requests. Please try again in ${RETRY_AFTER_SECONDS}s.`,
    {
      openaiType: 'requests',
      code: 'rate_limit_exceeded',
      retryAfterSeconds: RETRY_AFTER_SECONDS,
      shouldRetry: true,
    },
  )
}
