import { failure, type ServiceError } from '#shared/errors.ts'

const RETRY_AFTER_SECONDS = 5

/**
 * The bytes of the inputs that the unfinished jobs of one process have in Redis. An organization
 * may have as many of them as are free: a half when it is alone, a third when there are two. So
 * there is always room for the first job of another one.
 */
export class QueuedBytes {
  readonly #bytesMax: number
  #bytes = 0
  readonly #byOrganization = new Map<string, number>()

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** Throws when these bytes do not fit. */
  check(organizationId: string, bytes: number): void {
    if (bytes > this.#bytesMax / 2) throw tooLarge(bytes, Math.floor(this.#bytesMax / 2))
    const sum = (this.#byOrganization.get(organizationId) ?? 0) + bytes
    if (sum > this.#bytesMax - this.#bytes) throw noRoom(organizationId)
  }

  /** Counts these bytes until the returned function is called, once. */
  hold(organizationId: string, bytes: number): () => void {
    this.#add(organizationId, bytes)
    return () => this.#add(organizationId, -bytes)
  }

  #add(organizationId: string, bytes: number): void {
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
