import { pipeline, Transform, type TransformCallback } from 'node:stream'

import type { FastifyInstance } from 'fastify'

const PIECE_BYTES = 16 * 1024
// A body of this length needs no protection, however small its chunks are.
const HARMLESS_BYTES = 64 * 1024
const FORM = /^multipart\/form-data\b/i

/**
 * Joins small chunks. A client may send every byte as a chunk of its own, and a collector keeps an
 * object per chunk: hundreds of bytes of memory for one.
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
 * Collected bodies arrive in chunks of a minimum size. Forms are streams, whose files do the same.
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
