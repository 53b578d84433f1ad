/**
 * Runs calls a few at a time, in the order in which they come. Thousands of clients that wait for
 * something thereby wait longer, and take no connection to the database from other requests.
 */
export class Turns {
  readonly #limit: number
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(limit: number) {
    this.#limit = limit
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
