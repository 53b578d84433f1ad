import type { IncomingMessage } from 'node:http'

import { requestId } from '#shared/ids.ts'

const SAFE = /^[A-Za-z0-9_.:-]{1,64}$/

/**
 * The id of a request: taken from the configured header when its value is harmless, else generated.
 */
export function requestIdFrom(header: string): (request: IncomingMessage) => string {
  return (request) => {
    const inherited = header === '' ? undefined : request.headers[header]
    return typeof inherited === 'string' && SAFE.test(inherited) ? inherited : requestId()
  }
}
