import type { ServerResponse } from 'node:http'

import type { FastifyReply } from 'fastify'

import type { RecordedAnswer } from './idempotency-store.ts'

// The headers of an answer that a client reads; the others belong to the request or the connection.
const HEADERS_KEPT = [
  'content-type',
  'content-disposition',
  'location',
  'x-queue-time-ms',
  'x-inference-time-ms',
  'x-millrace-ignored-parameters',
]

/**
 * Records the bytes written to a response, streamed or not, even after its client disconnected.
 * `onEnd` is called once: with the answer, or with undefined when it exceeds `bytesMax` or has not
 * ended `patienceMs` after the disconnect.
 */
export function recordAnswer(
  reply: FastifyReply,
  limits: { readonly bytesMax: number; readonly patienceMs: number },
  onEnd: (answer: RecordedAnswer | undefined) => void,
): void {
  const { raw } = reply
  const { bytesMax, patienceMs } = limits
  const chunks: Buffer[] = []
  let bytes = 0
  const keep = (chunk: unknown, encoding: unknown): void => {
    if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array)) return
    const part =
      typeof chunk === 'string'
        ? Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8')
        : Buffer.from(chunk)
    bytes += part.length
    if (bytes > bytesMax) chunks.length = 0
    else chunks.push(part)
  }
  const write = raw.write.bind(raw) as (...args: unknown[]) => boolean
  const end = raw.end.bind(raw) as (...args: unknown[]) => ServerResponse
  let isWhole = false
  let patience: NodeJS.Timeout | undefined
  raw.write = ((chunk: unknown, ...rest: unknown[]) => {
    keep(chunk, rest[0])
    return write(chunk, ...rest)
  }) as ServerResponse['write']
  raw.end = ((chunk?: unknown, ...rest: unknown[]) => {
    // Node may call `write` itself for this chunk, but not through the replaced function.
    if (!isWhole) keep(chunk, rest[0])
    isWhole = true
    const ended = end(chunk, ...rest)
    if (patience !== undefined) conclude()
    return ended
  }) as ServerResponse['end']
  const conclude = (): void => {
    clearTimeout(patience)
    patience = undefined
    raw.write = write as ServerResponse['write']
    raw.end = end as ServerResponse['end']
    if (!isWhole || bytes > bytesMax) {
      onEnd(undefined)
      return
    }
    const headers: Record<string, string> = {}
    for (const name of HEADERS_KEPT) {
      const value = reply.getHeader(name)
      if (value !== undefined) headers[name] = String(value)
    }
    onEnd({ status: raw.statusCode, headers, body: Buffer.concat(chunks) })
  }
  const noteClose = (): void => {
    if (isWhole) conclude()
    else patience = setTimeout(conclude, patienceMs).unref()
  }
  // The client may have left before this function was called.
  if (raw.destroyed) noteClose()
  else raw.once('close', noteClose)
}

const STREAM_FAILED = /^(data: \{"error":|event: (error|response\.failed)\r?$)/m

/** Whether an answer is final, so that repeating the request cannot give another one. */
export function isFinal({ status, headers, body }: RecordedAnswer): boolean {
  // A rate limit is temporary as well.
  if (status >= 500 || status === 429 || status === 408) return false
  const isStream = headers['content-type']?.startsWith('text/event-stream') === true
  return !isStream || !STREAM_FAILED.test(body.toString('utf8'))
}
