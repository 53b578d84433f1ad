import { once } from 'node:events'

import type { FastifyReply } from 'fastify'

/** Server-sent events on a hijacked reply. */
export interface EventStream {
  /** Writes whole events; resolves when the socket has room again. */
  write(events: string): Promise<void>
  end(): void
  /** Aborted when the client leaves. */
  readonly signal: AbortSignal
}

const PING_AFTER_MS = 15_000

/**
 * Sends the headers of an event stream and hands over the socket. A comment is sent after 15 s of
 * silence, so that proxies keep the connection. Headers set on the reply before are sent along.
 */
export function openEventStream(reply: FastifyReply): EventStream {
  reply.hijack()
  const { raw } = reply
  const abort = new AbortController()
  raw.on('close', () => abort.abort())
  raw.on('error', () => abort.abort())
  if (raw.destroyed) abort.abort()
  reply.headers({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  })
  const headers = Object.entries(reply.getHeaders()).filter(([, value]) => value !== undefined)
  // In one call: headers set one by one are kept for as long as the stream is open.
  raw.writeHead(200, Object.fromEntries(headers))
  raw.flushHeaders()
  const ping = setInterval(() => raw.write(': ping\n\n'), PING_AFTER_MS)
  ping.unref()
  abort.signal.addEventListener('abort', () => clearInterval(ping))
  return {
    signal: abort.signal,
    async write(events) {
      ping.refresh()
      if (raw.write(events) || abort.signal.aborted) return
      await once(raw, 'drain', { signal: abort.signal }).catch(() => {
        // The client left while the socket was full; the signal says so already.
      })
    },
    end() {
      clearInterval(ping)
      raw.end()
    },
  }
}
