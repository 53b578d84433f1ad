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
  readonly #lastPositions = new Map<string, number>()

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
    const current =
      this.#newestStart?.generation === this.#generation ? this.#newestStart.position : 0
    const position = Math.max(current, this.#lastPositions.get(organizationId) ?? 0) + 1
    this.#lastPositions.set(organizationId, position)
    return { generation: this.#generation, position }
  }

  /** Records a ticket that the queue assigned. */
  recordAssigned(
    organizationId: string,
    { generation, position }: Ticket,
    depth: number,
    nowMs: number,
  ): void {
    if (generation !== this.#generation || this.#lastPositions.size >= ORGANIZATIONS_MAX) {
      this.#lastPositions.clear()
    }
    this.#generation = generation
    this.#depth = depth
    this.#dealtAtMs = nowMs
    this.#lastPositions.set(
      organizationId,
      Math.max(position, this.#lastPositions.get(organizationId) ?? 0),
    )
  }

  noteStart(start: Ticket): void {
    const newest = this.#newestStart
    const isOlder = newest?.generation === start.generation && newest.position >= start.position
    if (!isOlder) this.#newestStart = start
  }
}
