import type { Sequence } from './slots.ts'
import { type Placement, SlotTable, type SlotTableOptions } from './slots.ts'

/** One run of the model. */
export type Step =
  /**
   * The next `count` tokens of one sequence; logits of all of them if requested, else of the last.
   */
  | { readonly kind: 'prefill'; readonly sequence: Sequence; readonly count: number }
  /**
   * Complete prompts of several sequences, the longest of `length` tokens; logits of their last
   * tokens.
   */
  | {
      readonly kind: 'batchPrefill'
      readonly sequences: readonly Sequence[]
      readonly length: number
    }
  /** One token of every sequence: its last, or one of those that are replayed token by token. */
  | { readonly kind: 'decode'; readonly sequences: readonly Sequence[] }
  /** One token of a sequence and a draft of those after it. */
  | { readonly kind: 'verify'; readonly sequence: Sequence; readonly draft: readonly number[] }

/** Limits and abilities that the policy follows. */
export interface SchedulerOptions extends SlotTableOptions {
  /** Tokens of a prompt per run, which bounds how long others wait for their next token. */
  readonly prefillChunk: number
  /** Whether a run gives the logits of every position, or of the last alone. */
  readonly givesAllLogits: boolean
  /** Which complete prompts may share a run without changing each other's results. */
  readonly batchesPrompts: 'none' | 'sameLength' | 'any'
  /**
   * The longest text for the first set of rotary factors, if a model has two (LongRoPE): no run
   * mixes texts of both, and a text that becomes longer is computed again.
   */
  readonly shortTextMax?: number
  /** Tokens drafted ahead; 0 turns speculation off. */
  readonly draftMax: number
}

/** Longest pause of a sequence whose drafts fail, in steps. */
const SPECULATION_PAUSE_MAX = 64
/** The fewest tokens of a prompt per run beside streams: about the cost of a full decode step. */
const SHARED_CHUNK_MIN = 16
/** The largest ratio of prompt lengths in a run, because padding is computed as well. */
const LENGTHS_APART_MAX = 2
/**
 * While more texts wait than there are slots: the prompts that share a run, and the decode steps
 * that they wait.
 */
const GATHERED_MIN = 4
const BATCHING_STEPS_MAX = 4
/** A client waits for the replay, so a slow model uses the faster way beyond this. */
const REPLAY_MS_MAX = 10_000

/**
 * Decides which sequences run next, without access to tensors.
 *
 * Waiting sequences are admitted in order of arrival while there are slots; those whose job has the
 * fewest running come first, so that the candidates of one job do not delay another. Prompts and
 * decoding alternate: after each decode step a chunk of one prompt, prompts in rotation, so that
 * neither a long prompt nor many of them block a stream, and a short prompt overtakes a long one.
 * Beside streams a single prompt's chunk takes no longer than a decode step, so that their pace at
 * worst halves, and as many short prompts as fit into that time run together; the more prompts
 * there are, the longer the chunks. Complete prompts of similar length that fit into one chunk
 * share a run, which costs little more than one of them alone; if a queue has formed, they wait a
 * few steps for others.
 */
export class Scheduler {
  readonly slots: SlotTable
  readonly #options: SchedulerOptions
  readonly #waiting: Sequence[] = []
  #running: Sequence[] = []
  #isPrefillsTurn = true
  /** A smoothed duration of a decode step; undefined before the first. */
  #decodeMs: number | undefined
  /** The time spent on prompts since the last decode step. */
  #prefillMs = 0
  /** Tokens of a lone prompt per run while others decode. */
  #sharedChunk: number
  /** Decode steps for which complete prompts have waited for others. */
  #batchingSteps = 0
  /** Whether the next decode step takes long texts. */
  #decodesLongNext = false

  constructor(options: SchedulerOptions) {
    this.#options = options
    this.#sharedChunk = Math.min(SHARED_CHUNK_MIN, options.prefillChunk)
    this.slots = new SlotTable(options)
  }

  get numWaiting(): number {
    return this.#waiting.length
  }

  get numRunning(): number {
    return this.#running.length
  }

  get hasWork(): boolean {
    return this.#waiting.length + this.#running.length > 0
  }

  /** Every sequence that has not ended. */
  get sequences(): Sequence[] {
    return [...this.#waiting, ...this.#running]
  }

  add(sequence: Sequence): void {
    sequence.isLong = this.#isTooLong(sequence)
    this.#waiting.push(sequence)
  }

  /**
   * The placement of the next waiting sequence, or undefined while there is no room. If another
   * sequence is computing the same prompt, it waits for it and lets later ones pass.
   */
  canAdmit(): { sequence: Sequence; placement: Placement } | undefined {
    if (this.#waiting.length === 0 || this.slots.numOwned === this.slots.count) return undefined
    const sequence = this.#nextWaiting()
    const placement = sequence && this.slots.findPlacement(sequence)
    return placement && { sequence, placement }
  }

  #nextWaiting(): Sequence | undefined {
    const running = Map.groupBy(this.#running, ({ request }) => request.job)
    const countOf = ({ request: { job } }: Sequence): number =>
      job === undefined ? 0 : (running.get(job)?.length ?? 0)
    // The sort is stable: among equals, the first to arrive comes first.
    return this.#waiting
      .toSorted((one, other) => countOf(one) - countOf(other))
      .find((sequence) => !this.slots.isPrefixUnderway(sequence))
  }

  /** Starts a sequence at its placement, after the cache has prepared the prefix. */
  admit(sequence: Sequence, placement: Placement): void {
    this.#waiting.splice(this.#waiting.indexOf(sequence), 1)
    this.slots.assign(sequence, placement)
    sequence.cachedTokens = placement.prefixLength
    sequence.state = 'running'
    this.#running.push(sequence)
  }

  /** The next run, or undefined when nothing is admitted. */
  next(): Step | undefined {
    for (const sequence of this.#running) {
      if (!sequence.isLong && this.#isTooLong(sequence)) this.#restartAsLong(sequence)
      this.#decideReplay(sequence)
    }
    const decoding = this.#sameFactors(this.#running.filter((sequence) => this.#isInStep(sequence)))
    const prompts = this.#running.filter((sequence) => !this.#isInStep(sequence))
    const [prefilling] = prompts
    const isPrefillsTurn = this.#isPrefillsTurn || decoding.length === 0
    if (
      prefilling &&
      isPrefillsTurn &&
      !this.#gathers(prefilling, prompts.length, decoding.length)
    ) {
      this.#isPrefillsTurn = false
      const { prefillChunk } = this.#options
      const numPrompts = prompts.length
      const shared = Math.min(this.#sharedChunk * numPrompts, prefillChunk)
      const chunk = decoding.length === 0 ? prefillChunk : shared
      return this.#batchPrompts(prefilling, chunk) ?? this.#prefill(prefilling, chunk)
    }
    this.#isPrefillsTurn = true
    this.#prefillMs = 0
    if (decoding.length === 0) return undefined
    return this.#speculate(decoding) ?? { kind: 'decode', sequences: decoding }
  }

  /**
   * Records the result of a step: the number of computed positions of each of its sequences, or
   * complete prompts.
   */
  settle(step: Step, numComputed: number): void {
    if (step.kind === 'batchPrefill') {
      for (const sequence of step.sequences) sequence.numComputed = sequence.numPrompt
      return
    }
    if (step.kind === 'decode') {
      for (const sequence of step.sequences) sequence.numComputed += numComputed
      return
    }
    const { sequence } = step
    sequence.numComputed += numComputed
    if (step.kind === 'verify') settleDraft(sequence, step.draft.length, numComputed - 1)
    // Rotates the prompts.
    const index = this.#running.indexOf(sequence)
    this.#running.push(...this.#running.splice(index, 1))
  }

  /** Removes ended sequences; their cached positions stay for others. */
  sweep(): void {
    for (const sequence of this.sequences) {
      if (sequence.state === 'done') this.remove(sequence, { keeps: true })
    }
  }

  /** Removes an ended sequence; its positions may be kept for others. */
  remove(sequence: Sequence, options: { readonly keeps: boolean }): void {
    const waitingIndex = this.#waiting.indexOf(sequence)
    if (waitingIndex >= 0) this.#waiting.splice(waitingIndex, 1)
    if (!this.#running.includes(sequence)) return
    this.#running = this.#running.filter((other) => other !== sequence)
    this.slots.release(sequence, options)
  }

  /** Records the duration of a decode step. */
  noteDecode(durationMs: number): void {
    this.#decodeMs = (this.#decodeMs ?? durationMs) * 0.9 + durationMs * 0.1
  }

  /**
   * Records the duration of a prompt chunk, so that the next chunks fit the time of a decode step.
   */
  notePrefill(count: number, durationMs: number): void {
    if (this.#decodeMs === undefined) return
    this.#prefillMs += durationMs
    // Another one of this length would still fit.
    this.#isPrefillsTurn = this.#prefillMs + durationMs <= this.#decodeMs
    if (count < this.#sharedChunk) return
    const sharedMs = (durationMs * this.#sharedChunk) / count
    if (sharedMs > this.#decodeMs) this.#sharedChunk /= 2
    else if (sharedMs < this.#decodeMs / 2) this.#sharedChunk *= 2
    const { prefillChunk } = this.#options
    const least = Math.min(SHARED_CHUNK_MIN, prefillChunk)
    this.#sharedChunk = Math.min(Math.max(Math.floor(this.#sharedChunk), least), prefillChunk)
  }

  /**
   * A run over several positions rounds differently from a decode step, which can change the choice
   * of a token. A resumed text therefore replays its decode steps if time allows.
   */
  #decideReplay(sequence: Sequence): void {
    if (sequence.replay !== 'undecided' || sequence.numComputed < sequence.numPrompt) return
    const isExact = this.#options.reusesPrefixes && sequence.request.propose === undefined
    if (!isExact) sequence.replay = 'chunked'
    else if (this.#decodeMs !== undefined) {
      const replayMs = sequence.numMissing * this.#decodeMs
      sequence.replay = replayMs <= REPLAY_MS_MAX ? 'stepwise' : 'chunked'
    }
  }

  /** Whether a decode step computes the sequence's next token. */
  #isInStep(sequence: Sequence): boolean {
    if (sequence.isDecoding || sequence.isReplaying) return true
    const { prefillChunk, draftMax } = this.#options
    // If a run takes one token of a text, tokens of prompts and answers share it.
    const isStepwise = prefillChunk === 1 && draftMax === 0
    return isStepwise && sequence.numComputed > 0 && !sequence.wantsPromptLogits
  }

  #isTooLong({ tokenIds }: Sequence): boolean {
    return tokenIds.length > (this.#options.shortTextMax ?? Number.POSITIVE_INFINITY)
  }

  /**
   * The cached positions were computed with the factors of short texts, so all are computed again.
   */
  #restartAsLong(sequence: Sequence): void {
    sequence.isLong = true
    sequence.replay = 'chunked'
    this.slots.restart(sequence)
  }

  /** One run holds either short or long texts; decode steps of both alternate. */
  #sameFactors(decoding: readonly Sequence[]): readonly Sequence[] {
    const long = decoding.filter(({ isLong }) => isLong)
    if (long.length === 0 || long.length === decoding.length) return decoding
    if (!this.#isPrefillsTurn) this.#decodesLongNext = !this.#decodesLongNext
    return decoding.filter(({ isLong }) => isLong === this.#decodesLongNext)
  }

  /**
   * Whether a prompt waits for others, because a queue will soon fill the slots that become free.
   */
  #gathers(first: Sequence, numPrompts: number, numDecoding: number): boolean {
    const isWorthIt =
      this.#options.batchesPrompts !== 'none' &&
      this.#waiting.length > 0 &&
      numDecoding > 0 &&
      numPrompts < GATHERED_MIN &&
      isWholePrompt(first) &&
      this.#batchingSteps < BATCHING_STEPS_MAX
    this.#batchingSteps = isWorthIt ? this.#batchingSteps + 1 : 0
    return isWorthIt
  }

  /** The first prompt together with similar ones, if there are any and a chunk holds them. */
  #batchPrompts(first: Sequence, chunk: number): Step | undefined {
    const { batchesPrompts } = this.#options
    if (batchesPrompts === 'none' || !isWholePrompt(first)) return undefined
    const lengthsApart = batchesPrompts === 'any' ? LENGTHS_APART_MAX : 1
    const sequences = [first]
    let [shortest, longest] = [first.numPrompt, first.numPrompt]
    for (const sequence of this.#running) {
      if (sequence === first || !isWholePrompt(sequence)) continue
      const least = Math.min(shortest, sequence.numPrompt)
      const most = Math.max(longest, sequence.numPrompt)
      if (most > least * lengthsApart || most * (sequences.length + 1) > chunk) continue
      sequences.push(sequence)
      ;[shortest, longest] = [least, most]
    }
    return sequences.length > 1 ? { kind: 'batchPrefill', sequences, length: longest } : undefined
  }

  #prefill(sequence: Sequence, chunk: number): Step {
    const { prefillChunk, reusesPrefixes, givesAllLogits } = this.#options
    const { numComputed, numPrompt, numMissing } = sequence
    if (sequence.wantsPromptLogits && !givesAllLogits)
      return { kind: 'prefill', sequence, count: 1 }
    const left = numPrompt - numComputed
    if (reusesPrefixes) {
      const numWanted = left > 0 ? left : numMissing
      const most = Math.min(numWanted, chunk)
      // A run of one position rounds like a decode step, so a chunk of one is avoided.
      const count = numWanted - most === 1 && most > 2 ? most - 1 : most
      return { kind: 'prefill', sequence, count }
    }
    // Split exactly like an undisturbed run: complete chunks of the prompt, then single tokens.
    return { kind: 'prefill', sequence, count: left > 0 ? Math.min(left, prefillChunk) : 1 }
  }

  #speculate(decoding: readonly Sequence[]): Step | undefined {
    const [sequence] = decoding
    if (decoding.length !== 1 || sequence?.request.propose === undefined) return undefined
    if (!this.#options.reusesPrefixes || !this.#options.givesAllLogits) return undefined
    if (sequence.speculationPause > 0) {
      sequence.speculationPause -= 1
      return undefined
    }
    const room = Math.min(
      this.#options.draftMax,
      this.#options.contextLength - sequence.tokenIds.length - 1,
      sequence.request.maxNewTokens - sequence.numGenerated - 1,
      sequence.isLong
        ? Infinity
        : (this.#options.shortTextMax ?? Infinity) - sequence.tokenIds.length,
    )
    if (room <= 0) return undefined
    const draft = sequence.request.propose(sequence.tokenIds).slice(0, room)
    return draft.length > 0 ? { kind: 'verify', sequence, draft } : undefined
  }
}

/** Whether no part of a prompt is computed and only its last logits are needed. */
function isWholePrompt(sequence: Sequence): boolean {
  // A run of one position rounds like a decode step, unlike that position among others.
  const isFirst = sequence.numComputed === 0 && sequence.numPrompt > 1
  return isFirst && !sequence.wantsPromptLogits && !sequence.isLong
}

/**
 * Drafting continues while a quarter of the drafts are accepted; each failure doubles the pause
 * before the next draft.
 */
function settleDraft(sequence: Sequence, drafted: number, accepted: number): void {
  if (accepted * 4 >= drafted) {
    sequence.speculationBackoff = 1
    return
  }
  sequence.speculationPause = sequence.speculationBackoff
  sequence.speculationBackoff = Math.min(sequence.speculationBackoff * 2, SPECULATION_PAUSE_MAX)
}
