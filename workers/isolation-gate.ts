interface Waiter {
  readonly isSuspect: boolean
  readonly enter: () => void
}

/** A place inside the gate. Both functions may be called more than once. */
export interface Passage {
  /** The job has delivered something: it is not what would kill the process at its start. */
  prove(): void
  leave(): void
}

/**
 * Keeps suspects apart. A job whose last process died before the job had delivered anything is a
 * suspect; so are the innocent that shared the process. A suspect starts only when no other
 * unproven job runs here, and none starts until it has delivered something or ended: if the process
 * dies meanwhile, the suspect alone is charged. Jobs that are well under way go on beside it.
 */
export class IsolationGate {
  readonly #waiters: Waiter[] = []
  #unproven = 0
  #isSuspectInside = false

  /** Waits for the job's turn. Rejects with the signal's reason when it aborts first. */
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

  /** First come, first served: a suspect at the head holds up those behind it, but not for long. */
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
