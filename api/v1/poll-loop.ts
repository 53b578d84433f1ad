import { setImmediate, setTimeout } from 'node:timers/promises'

const INTERVAL_MS = 1000
const PAUSE_MS = 50

/**
 * Polls for work: at once when the last poll found some or was woken meanwhile, else after a
 * second. Polls never overlap.
 */
export class PollLoop {
  readonly #look: () => Promise<boolean>
  readonly #pauseMs: number
  readonly #loop: Promise<void>
  #isStopping = false
  /** Woken since the last poll began. */
  #isWoken = false
  #interrupt: () => void = () => {}

  /**
   * `look` returns whether more work may be ready; it does not throw. Two polls have at least a
   * pause between them.
   */
  constructor(look: () => Promise<boolean>, { pauseMs = PAUSE_MS } = {}) {
    this.#look = look
    this.#pauseMs = pauseMs
    this.#loop = this.#run()
  }

  get isStopping(): boolean {
    return this.#isStopping
  }

  /** Polls as soon as possible. */
  wake(): void {
    this.#isWoken = true
    this.#interrupt()
  }

  /** Stops polling; resolves when the last poll has ended. */
  async stop(): Promise<void> {
    this.#isStopping = true
    this.#interrupt()
    await this.#loop
  }

  async #run(): Promise<void> {
    // Deferred, so that the owner has stored the loop before the first poll.
    await setImmediate()
    while (!this.#isStopping) {
      this.#isWoken = false
      const hasMore = await this.#look()
      if (!hasMore) await this.#rest()
      await setTimeout(this.#pauseMs)
    }
  }

  /** Waits for the interval or until woken. */
  async #rest(): Promise<void> {
    if (this.#isStopping || this.#isWoken) return
    const woken = new AbortController()
    this.#interrupt = () => woken.abort()
    await setTimeout(INTERVAL_MS, undefined, { signal: woken.signal }).catch(() => {
      // An abort is the normal end of this wait.
    })
  }
}
