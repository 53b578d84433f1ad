import type { Readable, TransformCallback } from 'node:stream'
import { finished, Transform } from 'node:stream'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

const BYTES_PER_COLLECTION = 8 * 1024 * 1024
// One side may rest for some milliseconds before the other has to.
const WAITING_BYTES_MAX = 256 * 1024

/**
 * A stream that hands on what it gets. Every read from a socket makes a buffer that is dead a moment
 * later, but few objects, so that V8 would collect these buffers only by marking the whole heap,
 * several times per 100 MB. Collecting the young objects alone, every few megabytes that pass in
 * this process, takes less than a millisecond.
 */
export class PassingBytes extends Transform {
  readonly #look: (chunk: Buffer) => void

  /** `look` sees every chunk; what it throws ends the stream. */
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

/** Leads a source through; a fault of the source ends what follows, but not the other way round. */
export function passThrough(source: Readable, passing: Transform): Transform {
  finished(source, { writable: false }, (error) => {
    if (error) passing.destroy(error)
  })
  // It may fail before anybody reads it; who reads it then is told.
  passing.on('error', () => {})
  // Whatever went wrong behind is no fault of the source, which may be asked about its own.
  passing.once('close', () => source.destroy())
  return source.pipe(passing)
}

// One for all streams: they share the heap.
let bytesSinceCollection = 0
let collect: (() => void) | undefined

function notePassed(bytes: number): void {
  bytesSinceCollection += bytes
  if (bytesSinceCollection < BYTES_PER_COLLECTION) return
  bytesSinceCollection = 0
  collect ??= loadCollector()
  collect()
}

// Only contexts that are made after the flag was set know the function.
function loadCollector(): () => void {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as (options: object) => void
  setFlagsFromString('--no-expose-gc')
  return () => gc({ type: 'minor', execution: 'sync' })
}
