import { defined } from '#shared/json.ts'

import type { SequenceEnd, SequenceRequest } from './types.ts'

/** One row of the cache: its content and its current sequence. */
interface Slot {
  readonly index: number
  readonly tokenIds: readonly number[]
  /** How many of `tokenIds` are in the cache. */
  readonly length: number
  readonly scope: string
  readonly owner: Sequence | undefined
}

/** A slot for a sequence, and the source of its first `prefixLength` positions. */
export interface Placement {
  readonly slot: number
  readonly source: number
  readonly prefixLength: number
}

/** Memory of a slot to release: that of all positions starting at `from`. */
export interface MemoryRelease {
  readonly slot: number
  readonly from: number
}

interface SlotState {
  tokenIds: readonly number[]
  length: number
  scope: string
  owner: Sequence | undefined
  lastUsed: number
  /** Positions that have memory, or may get it while the current text runs. */
  reserved: number
}

/** How many texts the cache holds, and which of their prefixes another text may reuse. */
export interface SlotTableOptions {
  /** Texts that may be as long as the context. Their memory is the limit of the cache. */
  readonly slots: number
  /** Slots while shorter texts fit into that memory; `slots` if absent. */
  readonly slotsMax?: number
  readonly contextLength: number
  /** Positions that take as much memory as the states of a slot. */
  readonly statePositions?: number
  /** Off for models in which splitting a text into runs changes its results. */
  readonly reusesPrefixes: boolean
  /**
   * For models with states, which belong to one length: a prefix is either the whole content of a
   * finished sequence, or none.
   */
  readonly reusesWholeOnly?: boolean
}

/** Prefixes shorter than this are computed again: copying them would cost as much. */
const PREFIX_LENGTH_MIN = 4

/**
 * At most this many positions after a prefix are discarded: computing them again costs less than
 * copying the prefix.
 */
const TAIL_LENGTH_MAX = 16

/**
 * The assignment of sequences to slots, and the contents of finished ones. A finished sequence's
 * positions stay until the slot or its memory is needed. A new one of the same scope starts from
 * the longest common prefix: in place if it continues nearly all of it, else by copying.
 *
 * A sequence is admitted when the memory holds all positions that the running ones and it may need.
 * Slots beyond `slots` are used only while all others are taken.
 */
export class SlotTable {
  readonly #slots: SlotState[]
  readonly #options: SlotTableOptions
  /** The most positions that have memory, in all slots. */
  readonly #capacity: number
  readonly #releases: MemoryRelease[] = []
  #uses = 0

  constructor(options: SlotTableOptions) {
    const { slots, slotsMax = slots, contextLength } = options
    this.#options = options
    this.#slots = Array.from({ length: slotsMax }, emptySlot)
    this.#capacity = slots * this.#sizeOf(contextLength)
  }

  get count(): number {
    return this.#slots.length
  }

  get numOwned(): number {
    return this.#slots.filter((slot) => slot.owner !== undefined).length
  }

  /** The content of a slot; the length of a running sequence is its own count. */
  at(index: number): Slot {
    const slot = defined(this.#slots[index])
    const length = slot.owner?.numComputed ?? slot.length
    const tokenIds = slot.owner?.tokenIds ?? slot.tokenIds
    return { index, tokenIds, length, scope: slot.scope, owner: slot.owner }
  }

  /** How many texts of the current length fit at a time. */
  countFitting(sequences: readonly Sequence[]): number {
    const { slots, slotsMax = slots } = this.#options
    const sizes = sequences.map((sequence) => this.#sizeOf(this.#positionsMax(sequence)))
    const mean = sizes.reduce((sum, size) => sum + size, 0) / Math.max(sizes.length, 1)
    return Math.min(Math.max(Math.floor(this.#capacity / Math.max(mean, 1)), slots), slotsMax)
  }

  /** The placement of a sequence, or undefined when there is no slot or no memory for it. */
  findPlacement(sequence: Sequence): Placement | undefined {
    const free = this.#slots.flatMap((slot, index) => (slot.owner ? [] : [index]))
    const room = this.#capacity - this.#sizeOfRunning() - this.#sizeOf(this.#positionsMax(sequence))
    if (free.length === 0 || room < 0) return undefined
    const { source, length } = this.findPrefix(sequence)
    const held = free.includes(source) ? defined(this.#slots[source]).length : undefined
    const isInPlace = held !== undefined && held - length <= TAIL_LENGTH_MAX
    const isAlone = held !== undefined && this.#sizeOf(held) > room
    if (isInPlace || isAlone) return { slot: source, source, prefixLength: length }
    return { slot: this.#leastUseful(free, source), source, prefixLength: length }
  }

  /** Assigns the slot; its earlier contents are dropped except for the placement's prefix. */
  assign(sequence: Sequence, placement: Placement): void {
    const slot = defined(this.#slots[placement.slot])
    Object.assign(slot, { owner: sequence, scope: sequence.scope, tokenIds: [], length: 0 })
    slot.reserved = Math.max(slot.reserved, this.#positionsMax(sequence))
    sequence.slot = placement.slot
    sequence.numComputed = placement.prefixLength
    this.#trim(placement.source)
  }

  /** The memory to release, after the prefixes of assigned sequences have been copied. */
  takeReleases(): MemoryRelease[] {
    return this.#releases.splice(0)
  }

  /**
   * Releases the slot; the positions stay for sequences that share them, unless they may be
   * invalid.
   */
  release(sequence: Sequence, options: { readonly keeps: boolean }): void {
    const slot = defined(this.#slots[sequence.slot])
    this.#uses += 1
    slot.owner = undefined
    slot.lastUsed = this.#uses
    slot.tokenIds = options.keeps ? sequence.tokenIds : []
    slot.length = options.keeps ? sequence.numComputed : 0
    sequence.slot = -1
  }

  /** Discards the positions of a running sequence, because its scope has changed. */
  restart(sequence: Sequence): void {
    sequence.numComputed = 0
    defined(this.#slots[sequence.slot]).scope = sequence.scope
  }

  /** Exchanges two slots, after the cache has exchanged their contents. */
  swap(a: number, b: number): void {
    const first = defined(this.#slots[a])
    const second = defined(this.#slots[b])
    this.#slots[a] = second
    this.#slots[b] = first
    if (second.owner) second.owner.slot = a
    if (first.owner) first.owner.slot = b
    // Memory stays where it is.
    const { reserved } = first
    first.reserved = Math.max(second.reserved, this.#positionsNeeded(first))
    second.reserved = Math.max(reserved, this.#positionsNeeded(second))
    this.#trim()
  }

  /** Discards positions beyond `length` of an idle slot, because they were overwritten. */
  truncate(index: number, length: number): void {
    const slot = defined(this.#slots[index])
    if (slot.owner !== undefined || slot.length <= length) return
    slot.length = this.#options.reusesWholeOnly ? 0 : length
  }

  /** Discards the positions of finished sequences, because the cache may be invalid. */
  dropIdle(): void {
    for (const slot of this.#slots) if (slot.owner === undefined) slot.length = 0
  }

  /** The slot with the longest usable common prefix. The last token is always computed again. */
  findPrefix(sequence: Sequence): { source: number; length: number } {
    let best = { source: -1, length: 0 }
    const { reusesPrefixes, reusesWholeOnly } = this.#options
    if (!reusesPrefixes) return best
    for (let index = 0; index < this.#slots.length; index += 1) {
      const slot = this.at(index)
      if (slot.owner === sequence || slot.scope !== sequence.scope) continue
      const common = commonPrefix(slot.tokenIds, sequence, slot.length)
      // The prompt's last position alone would round differently than beside another.
      const isAllButOne = common === sequence.numPrompt - 1 && !sequence.wantsPromptLogits
      const length = isAllButOne ? common - 1 : common
      if (reusesWholeOnly && (slot.owner !== undefined || length < slot.length)) continue
      if (length > best.length) best = { source: index, length }
    }
    return best.length >= PREFIX_LENGTH_MIN ? best : { source: -1, length: 0 }
  }

  /** Whether a running sequence is computing more of the same prefix than the cache holds yet. */
  isPrefixUnderway(sequence: Sequence): boolean {
    if (!this.#options.reusesPrefixes || this.#options.reusesWholeOnly) return false
    const { length } = this.findPrefix(sequence)
    return this.#slots.some(({ owner, scope }) => {
      if (owner === undefined || owner === sequence || owner.isDecoding) return false
      if (scope !== sequence.scope) return false
      const shared = commonPrefix(owner.tokenIds, sequence, owner.tokenIds.length)
      return shared >= length + PREFIX_LENGTH_MIN && owner.numComputed < shared
    })
  }

  /** The lowest of the slots that are added under load, so that decode steps stay narrow. */
  #leastUseful(free: readonly number[], source: number): number {
    const usual = free.filter((index) => index < this.#options.slots)
    if (usual.length === 0) return defined(free[0])
    const empty = usual.find((index) => defined(this.#slots[index]).length === 0)
    if (empty !== undefined) return empty
    const others = usual.filter((index) => index !== source)
    return defined((others.length > 0 ? others : usual).toSorted(this.#byAge)[0])
  }

  readonly #byAge = (a: number, b: number): number =>
    defined(this.#slots[a]).lastUsed - defined(this.#slots[b]).lastUsed

  /**
   * Releases memory until the slots are within the limit: first that of ended texts, the oldest
   * first and except for the content of `kept`, then positions that running ones cannot need.
   */
  #trim(kept = -1): void {
    let excess = this.#slots.reduce((sum, { reserved }) => sum + this.#sizeOf(reserved), 0)
    excess -= this.#capacity
    if (excess <= 0) return
    const isRunning = (index: number): number => Number(this.#slots[index]?.owner !== undefined)
    const order = [...this.#slots.keys()].toSorted(
      (a, b) => isRunning(a) - isRunning(b) || this.#byAge(a, b),
    )
    for (const index of order) {
      const slot = defined(this.#slots[index])
      const isDropped = slot.owner === undefined && index !== kept
      const needed = isDropped ? 0 : this.#positionsNeeded(slot)
      if (excess <= 0 || slot.reserved <= needed) continue
      excess -= this.#sizeOf(slot.reserved) - this.#sizeOf(needed)
      slot.reserved = needed
      if (isDropped) slot.length = 0
      this.#releases.push({ slot: index, from: needed })
    }
  }

  /** In positions, counting the states. */
  #sizeOf(positions: number): number {
    return positions === 0 ? 0 : positions + (this.#options.statePositions ?? 0)
  }

  #sizeOfRunning(): number {
    return this.#slots.reduce(
      (sum, slot) => sum + (slot.owner ? this.#sizeOf(this.#positionsNeeded(slot)) : 0),
      0,
    )
  }

  #positionsNeeded({ owner, length }: SlotState): number {
    return owner ? this.#positionsMax(owner) : length
  }

  /** The most positions that a sequence may need. */
  #positionsMax({ numPrompt, request: { maxNewTokens } }: Sequence): number {
    return Math.min(numPrompt + maxNewTokens, this.#options.contextLength)
  }
}

function emptySlot(): SlotState {
  return { tokenIds: [], length: 0, scope: '', owner: undefined, lastUsed: 0, reserved: 0 }
}

function commonPrefix(held: readonly number[], sequence: Sequence, limit: number): number {
  const end = Math.min(limit, held.length, sequence.numCacheable)
  let length = 0
  while (length < end && held[length] === sequence.tokenIds[length]) length += 1
  return length
}

/** The state of a sequence; `done` is final. */
type SequenceState = 'waiting' | 'running' | 'done'

/**
 * A text in progress. Everything follows from one inequality: `numComputed` (positions in the
 * cache) catches up with `tokenIds.length`; when exactly one token is missing, computing it gives
 * the logits of the next.
 */
export class Sequence {
  readonly request: SequenceRequest
  /** Prompt and everything generated so far. */
  readonly tokenIds: number[]
  state: SequenceState = 'waiting'
  /** The slot whose cache holds this sequence, while it runs. */
  slot = -1
  numComputed = 0
  cachedTokens = 0
  /**
   * It has more tokens than the first set of rotary factors supports, so all of it uses the second.
   */
  isLong = false
  /**
   * How tokens that were generated elsewhere are computed again: one by one as before
   * (bit-identical), or in chunks (faster, but rounded differently).
   */
  replay: 'undecided' | 'stepwise' | 'chunked' = 'undecided'
  /** Steps to wait before the next speculation, and the length of the current pause. */
  speculationPause = 0
  speculationBackoff = 1
  readonly #resolve: (end: SequenceEnd) => void
  readonly #reject: (error: unknown) => void

  constructor(
    request: SequenceRequest,
    resolve: (end: SequenceEnd) => void,
    reject: (error: unknown) => void,
  ) {
    this.request = request
    this.tokenIds = [...request.promptTokenIds, ...request.generatedTokenIds]
    this.#resolve = resolve
    this.#reject = reject
  }

  get numPrompt(): number {
    return this.request.promptTokenIds.length
  }

  get numGenerated(): number {
    return this.tokenIds.length - this.numPrompt
  }

  get numMissing(): number {
    return this.tokenIds.length - this.numComputed
  }

  /** Whether the next logits need only one more token, as in every step after the prompt. */
  get isDecoding(): boolean {
    return this.numMissing === 1 && this.numComputed > 0 && this.numComputed >= this.numPrompt
  }

  /** Whether tokens generated elsewhere are being computed again, one per decode step. */
  get isReplaying(): boolean {
    const isPastPrompt = this.numComputed > 0 && this.numComputed >= this.numPrompt
    return isPastPrompt && this.numMissing > 1 && this.replay !== 'chunked'
  }

  /** Sequences of one scope may share cached positions. */
  get scope(): string {
    const { cacheScope, adapter } = this.request
    const scope = adapter ? `${cacheScope}\0adapter ${adapter.key}` : cacheScope
    return this.isLong ? `${scope}\0long` : scope
  }

  /** Whether logits of prompt positions are wanted. */
  get wantsPromptLogits(): boolean {
    return this.request.onPromptLogits !== undefined
  }

  /** Positions that the cache may provide: all before the first whose logits are needed. */
  get numCacheable(): number {
    const last = this.tokenIds.length - 1
    return this.wantsPromptLogits ? Math.min(this.request.promptLogitsFrom ?? 0, last) : last
  }

  finish(reason: SequenceEnd['reason']): void {
    this.state = 'done'
    this.#resolve({ reason, cachedTokens: this.cachedTokens })
  }

  fail(error: unknown): void {
    this.state = 'done'
    this.#reject(error)
  }
}
