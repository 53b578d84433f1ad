/** Runs a limited number of calls at a time, in the order of their arrival. */
export class Turns {
  readonly #limit: number
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  get running(): number {
    return this.#running
  }

  get waiting(): number {
    return this.#waiting.length
  }

  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running < this.#limit) this.#running += 1
    // The place of a call that has ended is handed over.
    else await new Promise<void>((enter) => this.#waiting.push(enter))
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#running -= 1
      else next()
    }
  }
}
