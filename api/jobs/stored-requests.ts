import { randomBytes } from 'node:crypto'

import type { StoredRequest } from '#api/v1/request-context.ts'

/** The header by which a process recognizes its own requests. */
export const STORED_REQUEST_HEADER = 'x-millrace-stored-request'

const TOKEN_BYTES = 32

/**
 * The stored requests that a process currently sends to itself. Each has a secret that is valid
 * once, so that other senders cannot name it.
 */
export class StoredRequests {
  readonly #byToken = new Map<string, StoredRequest>()

  /** Returns the header value by which the process recognizes the request. */
  add(request: StoredRequest): string {
    const token = randomBytes(TOKEN_BYTES).toString('base64url')
    this.#byToken.set(token, request)
    return token
  }

  /** The request of a header value, which is invalid from then on. */
  take(token: string | readonly string[] | undefined): StoredRequest | undefined {
    if (typeof token !== 'string') return undefined
    const request = this.#byToken.get(token)
    this.#byToken.delete(token)
    return request
  }
}
