import { once } from 'node:events'

import type { FastifyReply } from 'fastify'

import { writeIgnoredHeader } from './ignored-fields.ts'

/** Server-sent events on a hijacked reply. */
interface EventStream {
  /** Writes complete events; resolves when the socket has room again. */
  write(events: string): Promise<void>
  end(): void
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal
}

const PING_AFTER_MS = 15_000
// A client that leaves one write in the buffer this long does not read: its slot and memory are freed.
const WRITE_TIMEOUT_MS = 60_000

/**
 * Sends the headers of an event stream and takes over the socket. After 15 s of silence a comment
 * is sent, so that proxies keep the connection. Headers already set on the reply are included.
 */
export function openEventStream(reply: FastifyReply): EventStream {
  reply.hijack()
  const { raw } = reply
  const abort = new AbortController()
  raw.on('close', () => abort.abort())
  raw.on('error', () => abort.abort())
  if (raw.destroyed) abort.abort()
  writeIgnoredHeader(reply)
  reply.headers({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  })
  const headers = Object.entries(reply.getHeaders()).filter(([, value]) => value !== undefined)
  // In one call: headers set one by one stay in memory while the stream is open.
  raw.writeHead(200, Object.fromEntries(headers))
  raw.flushHeaders()
  const ping = setInterval(() => {
    if (!raw.writableNeedDrain) raw.write(': ping\n\n')
  }, PING_AFTER_MS)
  ping.unref()
  abort.signal.addEventListener('abort', () => clearInterval(ping))
  return {
    signal: abort.signal,
    async write(events) {
      ping.refresh()
      if (raw.write(events) || abort.signal.aborted) return
      const timer = setTimeout(() => raw.destroy(), WRITE_TIMEOUT_MS)
      await once(raw, 'drain', { signal: abort.signal }).catch(() => {
        // The client disconnected while the socket was full; the signal reports it.
      })
      clearTimeout(timer)
    },
    end() {
      clearInterval(ping)
      raw.end()
      if (raw.writableFinished) return
      const timer = setTimeout(() => raw.destroy(), WRITE_TIMEOUT_MS)
      raw.once('close', () => clearTimeout(timer))
    },
  }
}
