interface SlotCounts {
  readonly total: number
  /** The last free slots: only organizations with nothing in flight may take them. */
  readonly reserved: number
}

/** What may be claimed for the free slots of a process. */
export interface SlotRoom {
  readonly limit: number
  /** What one organization may have in flight after the claim. */
  readonly perOrganizationMax: number
  /** What organizations have in flight in this process. */
  readonly inFlight: Readonly<Record<string, number>>
}

/**
 * The slots of a process for background work. One organization takes all of them but the reserved
 * ones while no other waits; another one then finds a slot at once. A claim that gives free slots
 * to the organizations with the fewest in flight lets them have equal numbers in the end.
 */
export class FairSlots {
  readonly #counts: SlotCounts
  readonly #inFlight = new Map<string, number>()
  #free: number

  constructor(counts: SlotCounts) {
    this.#counts = counts
    this.#free = counts.total
  }

  /** What may be claimed now; the limit is 0 while no slot is free. */
  get room(): SlotRoom {
    const { total, reserved } = this.#counts
    const open = this.#free - reserved
    const inFlight = Object.fromEntries(this.#inFlight)
    if (open > 0) return { limit: open, perOrganizationMax: total, inFlight }
    return { limit: this.#free, perOrganizationMax: 1, inFlight }
  }

  /** Takes a slot for an organization; the answer frees it, once. */
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
