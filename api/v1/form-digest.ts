import { createHash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

const BOUNDARY = /^multipart\/form-data\s*;.*?\bboundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i
const MARK = '\0boundary\0'

/**
 * A digest of a form's content that does not depend on its boundary. The body is hashed while it
 * streams; only a possible start of a boundary is buffered.
 */
export class FormDigest {
  readonly #hash = createHash('sha256')
  readonly #boundary: Buffer
  #tail: Buffer = Buffer.alloc(0)
  #found: string | undefined

  constructor(boundary: string) {
    this.#boundary = Buffer.from(`--${boundary}`)
  }

  /** The digest; set when the whole body has been read. */
  get value(): string | undefined {
    return this.#found
  }

  update(chunk: Buffer): void {
    let rest = this.#tail.length === 0 ? chunk : Buffer.concat([this.#tail, chunk])
    for (let at = rest.indexOf(this.#boundary); at >= 0; at = rest.indexOf(this.#boundary)) {
      this.#hash.update(rest.subarray(0, at)).update(MARK)
      rest = rest.subarray(at + this.#boundary.length)
    }
    const keep = Math.min(rest.length, this.#boundary.length - 1)
    this.#hash.update(rest.subarray(0, rest.length - keep))
    this.#tail = Buffer.from(rest.subarray(rest.length - keep))
  }

  end(): void {
    this.#found ??= this.#hash.update(this.#tail).digest('hex')
  }
}

/** The digest of a form that will be read later; undefined for other bodies. */
export function formDigestOf({ headers }: IncomingMessage): FormDigest | undefined {
  const match = BOUNDARY.exec(headers['content-type'] ?? '')
  const boundary = match?.[1] ?? match?.[2]
  return boundary === undefined ? undefined : new FormDigest(boundary)
}

/** Passes the body through the digest once its reader starts; until then nothing flows. */
export function watchForm(raw: IncomingMessage, digest: FormDigest): void {
  const pipe = raw.pipe.bind(raw)
  raw.pipe = ((...args: Parameters<typeof pipe>) => {
    raw.on('data', (chunk: Buffer) => digest.update(chunk))
    raw.once('end', () => digest.end())
    return pipe(...args)
  }) as typeof raw.pipe
}

const END_TIMEOUT_MS = 1000

/** Resolves when a form has been read or has failed; stops waiting after a second. */
export async function formEnd(raw: IncomingMessage): Promise<void> {
  if (raw.readableEnded || raw.destroyed) return
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, END_TIMEOUT_MS)
    for (const name of ['end', 'close']) {
      raw.once(name, () => {
        clearTimeout(timer)
        resolve()
      })
    }
  })
}

/** Reads a form to its end only for its digest; undefined for an incomplete form. */
export async function readDigest(
  raw: IncomingMessage,
  digest: FormDigest,
): Promise<string | undefined> {
  try {
    for await (const chunk of raw) digest.update(chunk as Buffer)
  } catch {
    return undefined
  }
  digest.end()
  return digest.value
}
