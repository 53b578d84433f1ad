import type { Server } from 'node:http'
import { Server as Listener, type Socket } from 'node:net'
import { setImmediate, setTimeout as sleep } from 'node:timers/promises'

import type { FastifyInstance } from 'fastify'

import { failure } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { discardBody } from './form.ts'

/** How long clients are notified and still served before the port closes. */
const NOTICE_MS = 1000
const LOOK_INTERVAL_MS = 50
/**
 * A connection stays open for a moment after its last answer, because a client may send a request
 * at the same time.
 */
const IDLE_MS = 500
const ACCEPTING_TURNS = 1000
const SHORT_TURN_MS = 0.3

/** While a process stops, every answer carries `Connection: close`. */
export function registerConnectionDraining(app: FastifyInstance, isDraining: () => boolean): void {
  app.addHook('onRequest', async (_request, reply) => {
    if (isDraining()) reply.raw.shouldKeepAlive = false
  })
}

/**
 * Drains connections without failing a request: open connections close with their next answer, then
 * new connections are refused, and requests on old ones are still answered. Connections that remain
 * after the time limit are cut.
 */
export async function drain(app: FastifyInstance, timeoutMs: number, log: Logger): Promise<void> {
  const { server } = app
  server.keepAliveTimeout = IDLE_MS
  server.keepAliveTimeoutBuffer = 0
  await whileConnected(server, NOTICE_MS)
  await emptyBacklog(server)
  // Unlike the server's `close`, this does not cut new connections that have not sent a request
  // yet.
  Listener.prototype.close.call(server)
  await whileConnected(server, IDLE_MS)
  const timer = setTimeout(() => {
    log.warn({ operation: 'api.drain' }, 'open requests were cut off after the drain time')
    server.closeAllConnections()
  }, timeoutMs)
  try {
    await app.close()
  } finally {
    clearTimeout(timer)
  }
}

/** Waits for this long, or until no connection is left. */
async function whileConnected(server: Server, timeMs: number): Promise<void> {
  const until = performance.now() + timeMs
  while (performance.now() < until && (await numConnections(server)) > 0) {
    await sleep(LOOK_INTERVAL_MS)
  }
}

/**
 * Accepts connections that the kernel has already queued before the port closes, because the kernel
 * resets queued ones. The backlog is set to the minimum first, so new clients retry a second later,
 * when the port is closed. The event loop accepts one connection per iteration; the first iteration
 * without one ends the loop.
 */
async function emptyBacklog(server: Server): Promise<void> {
  // Node has no public API to change the backlog. Without this internal field, more connections may
  // be reset.
  const { _handle: port } = server as { _handle?: { listen?: (backlog: number) => number } }
  port?.listen?.(0)
  let numTaken = 0
  const count = (): void => {
    numTaken += 1
  }
  server.on('connection', count)
  for (let turn = 0; turn < ACCEPTING_TURNS; turn += 1) {
    const [from, before] = [performance.now(), numTaken]
    await setImmediate()
    if (numTaken === before && performance.now() - from < SHORT_TURN_MS) break
  }
  server.off('connection', count)
}

function numConnections(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.getConnections((error, count) => resolve(error === null ? count : 0))
  })
}

const HEADER_OVERFLOW = { status: 431, reason: 'Request Header Fields Too Large' }
const TIMED_OUT = { status: 408, reason: 'Request Timeout' }
const MALFORMED = { status: 400, reason: 'Bad Request' }
/** A client that does not close a refused connection is disconnected after this time. */
const LINGER_MS = 1000
const HOST = /^[\w.~%:[\]-]+$/
const ANSWERS: Readonly<Record<string, { readonly status: number; readonly reason: string }>> = {
  HPE_HEADER_OVERFLOW: HEADER_OVERFLOW,
  ERR_HTTP_REQUEST_TIMEOUT: TIMED_OUT,
}

/** Answers malformed requests and request time-outs in the error format of all surfaces. */
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

/**
 * Compressed bodies are not supported. They are refused with a message about their encoding instead
 * of malformed JSON.
 */
export function refuseEncodedBodies(app: FastifyInstance): void {
  app.addHook('onRequest', async (request) => {
    const encoding = request.headers['content-encoding']
    if (encoding === undefined || encoding.toLowerCase() === 'identity') return
    throw failure.unsupportedMediaType(
      'Unsupported Content-Encoding: send the body without compression.',
    )
  })
}

/**
 * Refuses invalid Host headers, because URLs in answers contain the host, and repeated ones,
 * because a proxy may have read the other one (RFC 9112, section 3.2).
 */
export function refuseInvalidHosts(app: FastifyInstance): void {
  app.addHook('onRequest', async ({ host, raw }) => {
    const isValid = host === '' || (HOST.test(host) && URL.canParse(`http://${host}`))
    if (isValid && countOf(raw.rawHeaders, 'host') < 2) return
    throw failure.invalidRequest('Invalid Host header.')
  })
}

/** Counts a header; `rawHeaders` alternates names and values. */
function countOf(rawHeaders: readonly string[], name: string): number {
  let count = 0
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() === name) count += 1
  }
  return count
}

/**
 * Reads the rest of a refused body: most clients read the answer only after they have sent
 * everything.
 */
export function readRefusedBodies(app: FastifyInstance): void {
  app.addHook('onSend', async (request, reply) => {
    if (reply.statusCode !== 413 || request.raw.complete) return
    reply.removeHeader('connection')
    // The connection stays open even if the client asked to close it: a reset while it sends would
    // hide the answer.
    reply.raw.shouldKeepAlive = true
    discardBody(request)
  })
}
