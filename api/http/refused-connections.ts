import type { Socket } from 'node:net'

import type { FastifyInstance } from 'fastify'

import { failure } from '#shared/errors.ts'

import { drain } from './form.ts'

const HEADER_OVERFLOW = { status: 431, reason: 'Request Header Fields Too Large' }
const TIMED_OUT = { status: 408, reason: 'Request Timeout' }
const MALFORMED = { status: 400, reason: 'Bad Request' }
/** A client that does not close a refused connection loses it after this. */
const LINGER_MS = 1000
const HOST = /^[\w.~%:[\]-]+$/
const ANSWERS: Readonly<Record<string, { readonly status: number; readonly reason: string }>> = {
  HPE_HEADER_OVERFLOW: HEADER_OVERFLOW,
  ERR_HTTP_REQUEST_TIMEOUT: TIMED_OUT,
}

/** Answers malformed requests and request time-outs in the common error form. */
export function refuseConnection(error: Error & { readonly code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) {
    socket.destroy()
    return
  }
  const { status, reason } = ANSWERS[error.code ?? ''] ?? MALFORMED
  const body = JSON.stringify({
    error: { message: `${reason}.`, type: 'invalid_request_error', param: null, code: null },
  })
  const head = [
    `HTTP/1.1 ${status} ${reason}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`)
  const timer = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(timer))
}

/** Compressed bodies are not supported and are refused by name instead of as malformed JSON. */
export function refuseEncodedBodies(app: FastifyInstance): void {
  app.addHook('onRequest', async (request) => {
    const encoding = request.headers['content-encoding']
    if (encoding === undefined || encoding.toLowerCase() === 'identity') return
    throw failure.unsupportedMediaType(
      'Unsupported Content-Encoding: send the body without compression.',
    )
  })
}

/** RFC 9112, section 3.2: refuses an invalid host, because URLs in answers contain it. */
export function refuseInvalidHosts(app: FastifyInstance): void {
  app.addHook('onRequest', async ({ host }) => {
    if (host === '' || (HOST.test(host) && URL.canParse(`http://${host}`))) return
    throw failure.invalidRequest('Invalid Host header.')
  })
}

/**
 * Reads the rest of a refused body: most clients read the answer only after they have sent
 * everything.
 */
export function readRefusedBodies(app: FastifyInstance): void {
  app.addHook('onSend', async (request, reply) => {
    if (reply.statusCode !== 413 || request.raw.complete) return
    reply.removeHeader('connection')
    // Also for clients that close the connection: a reset while they send would hide the answer.
    reply.raw.shouldKeepAlive = true
    drain(request)
  })
}
