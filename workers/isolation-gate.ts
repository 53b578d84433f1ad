interface Waiter {
  readonly isSuspect: boolean
  readonly enter: () => void
}

/** A place inside the gate. Both functions are idempotent. */
export interface Passage {
  /** The job has delivered something, so it does not kill its process at the start. */
  prove(): void
  leave(): void
}

/**
 * Isolates suspected jobs. A job whose last process died before the job had delivered anything is
 * suspected, and so are other jobs of that process. A suspected job starts only when no other
 * unproven job runs here, and no other starts until it has delivered something or ended: if the
 * process dies meanwhile, only this job is at fault. Jobs that have delivered something continue
 * beside it.
 */
export class IsolationGate {
  readonly #waiters: Waiter[] = []
  #unproven = 0
  #isSuspectInside = false

  /** Waits until the job may start. Rejects with the signal's reason when it aborts first. */
  enter(isSuspect: boolean, signal: AbortSignal): Promise<Passage> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason as Error)
      const waiter: Waiter = {
        isSuspect,
        enter: () => {
          signal.removeEventListener('abort', onAbort)
          resolve(this.#admit(isSuspect))
        },
      }
      const onAbort = (): void => {
        const index = this.#waiters.indexOf(waiter)
        if (index >= 0) this.#waiters.splice(index, 1)
        reject(signal.reason as Error)
        this.#advance()
      }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#waiters.push(waiter)
      this.#advance()
    })
  }

  #admit(isSuspect: boolean): Passage {
    this.#unproven += 1
    if (isSuspect) this.#isSuspectInside = true
    let isUnproven = true
    const prove = (): void => {
      if (!isUnproven) return
      isUnproven = false
      this.#unproven -= 1
      if (isSuspect) this.#isSuspectInside = false
      this.#advance()
    }
    return { prove, leave: prove }
  }

  /**
   * First come, first served: a suspected job at the head delays those behind it, but only briefly.
   */
  #advance(): void {
    for (;;) {
      const next = this.#waiters[0]
      if (next === undefined || this.#isSuspectInside) return
      if (next.isSuspect && this.#unproven > 0) return
      this.#waiters.shift()
      next.enter()
    }
  }
}
