interface SlotCounts {
  readonly total: number
  /** The last free slots, which only organizations with nothing in flight may take. */
  readonly reserved: number
}

/** The claims that are possible for the free slots of a process. */
export interface SlotRoom {
  readonly limit: number
  /** The most that one organization may have in flight after the claim. */
  readonly perOrganizationMax: number
  /** The number of slots that each organization uses in this process. */
  readonly inFlight: Readonly<Record<string, number>>
}

/**
 * The slots of a process for background work. One organization can take all but the reserved slots
 * while no other waits, so another one finds a slot at once. Free slots go to the organizations
 * with the fewest in flight, so that in the end all have equal numbers.
 */
export class FairSlots {
  readonly #counts: SlotCounts
  readonly #inFlight = new Map<string, number>()
  #free: number

  constructor(counts: SlotCounts) {
    this.#counts = counts
    this.#free = counts.total
  }

  /** The possible claims now; the limit is 0 while no slot is free. */
  get room(): SlotRoom {
    const { total, reserved } = this.#counts
    const open = this.#free - reserved
    const inFlight = Object.fromEntries(this.#inFlight)
    if (open > 0) return { limit: open, perOrganizationMax: total, inFlight }
    return { limit: this.#free, perOrganizationMax: 1, inFlight }
  }

  /** Takes a slot for an organization. The returned function releases it, once. */
  take(organizationId: string): () => void {
    let isTaken = true
    this.#add(organizationId, 1)
    return () => {
      if (isTaken) this.#add(organizationId, -1)
      isTaken = false
    }
  }

  #add(organizationId: string, by: 1 | -1): void {
    const count = (this.#inFlight.get(organizationId) ?? 0) + by
    if (count === 0) this.#inFlight.delete(organizationId)
    else this.#inFlight.set(organizationId, count)
    this.#free -= by
  }
}
