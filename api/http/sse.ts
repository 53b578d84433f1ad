import { once } from 'node:events'
import { pipeline, Transform, type TransformCallback } from 'node:stream'

import type { FastifyInstance, FastifyReply } from 'fastify'

import { writeIgnoredHeader } from './validation.ts'

/** Server-sent events on a hijacked reply. */
interface EventStream {
  /** Writes complete events; resolves when the socket has room again. */
  write(events: string): Promise<void>
  end(): void
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal
}

const PING_AFTER_MS = 15_000
// A client that leaves one write in the buffer this long has stopped reading: its slot and memory
// are released.
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
  // One call: headers that are set one by one stay in memory while the stream is open.
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

const PIECE_BYTES = 16 * 1024
// A body of this length needs no protection, however small its chunks are.
const HARMLESS_BYTES = 64 * 1024
const FORM = /^multipart\/form-data\b/i

/**
 * Joins small chunks. A client may send every byte as a separate chunk, and a collector keeps an
 * object per chunk: hundreds of bytes of memory for one byte.
 */
export class ChunkJoiner extends Transform {
  #piece = Buffer.alloc(0)
  #length = 0

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    if (this.#length + chunk.length > PIECE_BYTES) this.#flushPiece()
    if (chunk.length >= PIECE_BYTES) {
      this.push(chunk)
    } else {
      if (this.#length === 0) this.#piece = Buffer.allocUnsafeSlow(PIECE_BYTES)
      this.#length += chunk.copy(this.#piece, this.#length)
    }
    done()
  }

  override _flush(done: TransformCallback): void {
    this.#flushPiece()
    done()
  }

  #flushPiece(): void {
    if (this.#length > 0) this.push(this.#piece.subarray(0, this.#length))
    this.#length = 0
  }
}

/**
 * Makes collected bodies arrive in chunks of a minimum size. Forms are streams; their files are
 * joined in the same way.
 */
export function joinSmallChunks(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, payload, done) => {
    const {
      'content-length': length,
      'content-type': type,
      'transfer-encoding': coding,
    } = request.headers
    const isLong = coding !== undefined || Number(length ?? 0) > HARMLESS_BYTES
    const isForm =
      FORM.test(type ?? '') && request.server.hasContentTypeParser('multipart/form-data')
    if (!isLong || isForm) return done(null, payload)
    const pieces = new ChunkJoiner()
    pipeline(payload, pieces, () => {
      // The reader of the chunks receives the error.
    })
    return done(null, pieces)
  })
}
