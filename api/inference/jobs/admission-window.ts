import type { Ticket } from '#shared/queue/tickets.ts'

/** Redis resets the tickets of a queue that is empty and assigned none for longer than this. */
const GUESS_MS_MAX = 900
const ORGANIZATIONS_MAX = 1000

/** The admission window of one queue, as this process sees it. */
export class AdmissionWindow {
  /** Jobs that are admitted but not yet counted in the queue's depth. */
  entering = 0
  #newestStart: Ticket | undefined
  #generation = ''
  #dealtAtMs = Number.NEGATIVE_INFINITY
  #depth = 0
  readonly #lastTurns = new Map<string, number>()

  /** The newest ticket that was seen to start. */
  get newestStart(): Ticket | undefined {
    return this.#newestStart
  }

  /**
   * Predicts the ticket that the queue would assign now; undefined when that is not possible, or
   * when the queue is so full that it must be asked first. Saves one round trip.
   */
  predictTicket(organizationId: string, depthMax: number, nowMs: number): Ticket | undefined {
    const isStale = nowMs - this.#dealtAtMs > GUESS_MS_MAX
    if (isStale || 2 * (this.#depth + this.entering) > depthMax) return undefined
    const current = this.#newestStart?.generation === this.#generation ? this.#newestStart.turn : 0
    const turn = Math.max(current, this.#lastTurns.get(organizationId) ?? 0) + 1
    this.#lastTurns.set(organizationId, turn)
    return { generation: this.#generation, turn }
  }

  /** Records a ticket that the queue assigned. */
  recordAssigned(
    organizationId: string,
    { generation, turn }: Ticket,
    depth: number,
    nowMs: number,
  ): void {
    if (generation !== this.#generation || this.#lastTurns.size >= ORGANIZATIONS_MAX) {
      this.#lastTurns.clear()
    }
    this.#generation = generation
    this.#depth = depth
    this.#dealtAtMs = nowMs
    this.#lastTurns.set(organizationId, Math.max(turn, this.#lastTurns.get(organizationId) ?? 0))
  }

  noteStart(start: Ticket): void {
    const newest = this.#newestStart
    const isOlder = newest?.generation === start.generation && newest.turn >= start.turn
    if (!isOlder) this.#newestStart = start
  }
}
