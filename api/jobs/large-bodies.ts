/**
 * The large bodies of the requests that one process runs. Bodies are read one after the other, and
 * only while those in use are below the limit, so that a process exceeds it by at most one body.
 */
export class LargeBodies {
  readonly #bytesMax: number
  #bytes = 0
  #isReading = false
  readonly #waiting = new Set<() => void>()

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /**
   * Reads a body when it may and passes it to `use`, which holds it until it settles. Throws when
   * the signal aborts first.
   */
  async with<Result>(
    read: () => Promise<Buffer>,
    use: (body: Buffer) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result> {
    const body = await this.#read(read, signal)
    try {
      return await use(body)
    } finally {
      this.#bytes -= body.length
      this.#admit()
    }
  }

  async #read(read: () => Promise<Buffer>, signal: AbortSignal): Promise<Buffer> {
    signal.throwIfAborted()
    await new Promise<void>((resolve, reject) => {
      const enter = (): void => {
        signal.removeEventListener('abort', leave)
        resolve()
      }
      const leave = (): void => {
        this.#waiting.delete(enter)
        reject(signal.reason)
      }
      signal.addEventListener('abort', leave, { once: true })
      this.#waiting.add(enter)
      this.#admit()
    })
    try {
      const body = await read()
      this.#bytes += body.length
      return body
    } finally {
      this.#isReading = false
      this.#admit()
    }
  }

  /** Lets the next body be read, if there is room. */
  #admit(): void {
    const [next] = this.#waiting
    if (next === undefined || this.#isReading || this.#bytes >= this.#bytesMax) return
    this.#waiting.delete(next)
    this.#isReading = true
    next()
  }
}
