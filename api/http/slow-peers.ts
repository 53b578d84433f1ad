import type { ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { Readable } from 'node:stream'

import type { FastifyInstance } from 'fastify'

/** How long slow or silent clients hold a socket. */
export interface PeerLimits {
  /** From the first byte of a request to the end of its headers. */
  readonly headersMs: number
  /** From the first byte of a request to its last. */
  readonly requestMs: number
  /** The interval at which both limits are checked. */
  readonly checkMs: number
  /** A connection is closed when its answer waits this long and the client reads nothing. */
  readonly stallMs: number
  /**
   * In each interval of this length a client must read at least `readBytesMin` of a large answer.
   */
  readonly readWindowMs: number
  readonly readBytesMin: number
}

/** The limits of the API's server. */
export const PEER_LIMITS: PeerLimits = {
  headersMs: 15_000,
  requestMs: 300_000,
  checkMs: 5000,
  stallMs: 60_000,
  readWindowMs: 60_000,
  readBytesMin: 65_536,
}

/**
 * Ends answers that clients read too slowly or not at all: each holds a socket, and an answer of
 * stored bytes a file. Event streams have a limit of their own.
 */
export function cutSlowReaders(app: FastifyInstance, limits: PeerLimits): void {
  /** Bytes sent at the last check; undefined before the first check. */
  const answers = new Map<ServerResponse, number | undefined>()
  app.addHook('onSend', async ({ socket }, { raw }, payload) => {
    if (!(socket instanceof Socket)) return
    // Restarts while the client reads, however slowly; keep-alive sets its own time-out afterwards.
    socket.setTimeout(limits.stallMs)
    if (!mayStall(payload, limits)) return
    answers.set(raw, undefined)
    raw.once('close', () => answers.delete(raw))
  })
  const timer = setInterval(() => {
    for (const [answer, before] of answers) {
      const { socket } = answer
      if (socket === null) continue
      const waiting = answer.writableLength + socket.writableLength
      const sent = socket.bytesWritten - socket.writableLength
      const isSlow = before !== undefined && sent - before < limits.readBytesMin
      // Nothing is buffered: the source is slow, not the client.
      if (isSlow && waiting > 0) answer.destroy()
      else answers.set(answer, sent)
    }
  }, limits.readWindowMs)
  timer.unref()
  app.addHook('onClose', async () => clearInterval(timer))
}

/** Smaller answers fit into the buffers of the system. */
function mayStall(payload: unknown, { readBytesMin }: PeerLimits): boolean {
  if (payload instanceof Readable) return true
  const isSized = typeof payload === 'string' || Buffer.isBuffer(payload)
  return isSized && payload.length > readBytesMin
}
