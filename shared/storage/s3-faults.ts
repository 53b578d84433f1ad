import type { IncomingMessage } from 'node:http'

import type { S3Client } from '@aws-sdk/client-s3'

import { failure, type ServiceError } from '#shared/errors.ts'

import { storageFull } from './object-store.ts'
import { isWrongSetting } from './s3-check.ts'

// Error codes of servers that are full.
const FULL: readonly string[] = ['XMinioStorageFull', 'InsufficientCapacity', 'QuotaExceeded']

// Statuses of servers that recover, and of refused credentials.
const UNAVAILABLE: readonly number[] = [301, 401, 403, 429, 500, 502, 503, 504]

interface S3Fault {
  readonly name?: string
  readonly message?: string
  readonly $metadata?: { readonly httpStatusCode?: number }
}

/** Makes an S3 client report a silent, busy or full server as a `ServiceError`. */
export function translateFaults(client: S3Client): void {
  // Runs inside the SDK's retries: a request that timed out must not wait again. The SDK also
  // inspects `cause`, so the reason is passed as text only.
  client.middlewareStack.add(
    (next) => (call) =>
      next(call).catch((error: S3Fault) => {
        throw isSilence(error) ? unavailable(new Error(error.message)) : error
      }),
    { step: 'finalizeRequest', priority: 'low', name: 'refuseSilence' },
  )
  client.middlewareStack.add(
    (next) => (call) =>
      next(call).catch((error: S3Fault) => {
        throw translate(error)
      }),
    { step: 'initialize', priority: 'high', name: 'translateFaults' },
  )
}

/** Ends a body when its server is silent. A slow reader is not limited. */
export function watchForSilence(body: IncomingMessage, silenceMs: number): IncomingMessage {
  const { socket } = body
  // The SDK's own time-out would also count pauses of a slow reader.
  socket.setTimeout(0)
  let bytesSeen = -1
  const timer = setInterval(() => {
    const isStarving = body.readableLength === 0 && !body.complete
    if (isStarving && socket.bytesRead === bytesSeen) {
      body.destroy(unavailable(new Error('the object storage fell silent')))
    }
    bytesSeen = socket.bytesRead
  }, silenceMs).unref()
  body.once('close', () => clearInterval(timer))
  return body
}

function isSilence({ name, message = '' }: S3Fault): boolean {
  return name === 'TimeoutError' && message.includes('of inactivity')
}

function translate(error: S3Fault): S3Fault {
  const status = error.$metadata?.httpStatusCode ?? 0
  if (status === 507 || FULL.includes(error.name ?? '')) return storageFull(error)
  const isUnavailable = UNAVAILABLE.includes(status) || isWrongSetting(error.name)
  return isUnavailable ? unavailable(error) : error
}

function unavailable(cause: unknown): ServiceError {
  return failure.overloaded('The object storage is not available. Try again soon.', {
    code: 'service_unavailable',
    retryAfterSeconds: 1,
    cause,
  })
}
