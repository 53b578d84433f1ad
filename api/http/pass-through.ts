import type { Readable, TransformCallback } from 'node:stream'
import { finished, Transform } from 'node:stream'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

const BYTES_PER_COLLECTION = 8 * 1024 * 1024
// Lets one side pause for some milliseconds before the other must.
const WAITING_BYTES_MAX = 256 * 1024

/**
 * A pass-through stream that inspects every chunk. Each socket read allocates a short-lived buffer
 * but few objects, so V8 would release these buffers only by marking the whole heap, several times
 * per 100 MB. A minor collection every few megabytes takes less than a millisecond.
 */
export class PassThroughBytes extends Transform {
  readonly #look: (chunk: Buffer) => void

  /** Calls `look` with every chunk; an error thrown there ends the stream. */
  constructor(look: (chunk: Buffer) => void = () => {}) {
    super({ highWaterMark: WAITING_BYTES_MAX })
    this.#look = look
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    notePassed(chunk.length)
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
  // An error may precede the first reader, which receives it later.
  passing.on('error', () => {})
  // An error behind the transform is not reported as one of the source.
  passing.once('close', () => source.destroy())
  return source.pipe(passing)
}

// Shared by all streams, because they share the heap.
let bytesSinceCollection = 0
let collect: (() => void) | undefined

function notePassed(bytes: number): void {
  bytesSinceCollection += bytes
  if (bytesSinceCollection < BYTES_PER_COLLECTION) return
  bytesSinceCollection = 0
  collect ??= loadCollector()
  collect()
}

// Only contexts created after the flag was set have the function.
function loadCollector(): () => void {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as (options: object) => void
  setFlagsFromString('--no-expose-gc')
  return () => gc({ type: 'minor', execution: 'sync' })
}
