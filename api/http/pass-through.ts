import type { Readable, TransformCallback } from 'node:stream'
import { finished, Transform } from 'node:stream'

// The most bytes by which one side may be ahead of the other.
const WAITING_BYTES_MAX = 256 * 1024

/** A pass-through stream that shows every chunk to a function. */
export class PassThroughBytes extends Transform {
  readonly #look: (chunk: Buffer) => void

  /** Calls `look` with every chunk; an error thrown there ends the stream. */
  constructor(look: (chunk: Buffer) => void = () => {}) {
    super({ highWaterMark: WAITING_BYTES_MAX })
    this.#look = look
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    try {
      this.#look(chunk)
    } catch (error) {
      done(error as Error)
      return
    }
    done(null, chunk)
  }
}

/**
 * Pipes a source through a transform; an error of the source ends the transform, but not the
 * reverse.
 */
export function passThrough(source: Readable, passing: Transform): Transform {
  finished(source, { writable: false }, (error) => {
    if (error) passing.destroy(error)
  })
  // The error may occur before the first reader, which receives it later.
  passing.on('error', () => {})
  // An error after the transform is not reported as one of the source.
  passing.once('close', () => source.destroy())
  return source.pipe(passing)
}
