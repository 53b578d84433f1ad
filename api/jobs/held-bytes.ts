import { failure, type ServiceError } from '#shared/errors.ts'

const RETRY_AFTER_SECONDS = 5

/** The reservation of one request. */
interface Holding {
  /** Reserves more bytes. Throws when they exceed a limit. */
  add(bytes: number): void
  /** Counts bytes that are already stored; never throws. */
  addStored(bytes: number): void
  end(): void
}

/**
 * Limits the bytes that the unfinished requests of one process store elsewhere: inputs in Redis, or
 * media in object storage. An organization may use as many bytes as remain free: half if it is
 * alone, a third each if there are two. So the first request of another organization always fits.
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
        const requestBytesMax = Math.floor(this.#bytesMax / 2)
        if (held + bytes > requestBytesMax) throw tooLarge(held + bytes, requestBytesMax)
        const sum = (this.#byOrganization.get(organizationId) ?? 0) + bytes
        if (sum > this.#bytesMax - this.#bytes) throw rateLimited(organizationId)
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
    `The input of this request, including referenced content, has ${bytes} bytes; at most ${bytesMax} bytes are allowed.`,
    { code: 'request_too_large' },
  )
}

function rateLimited(organizationId: string): ServiceError {
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
