import type { WorkBudget } from '#workers/preparation/work-budget.ts'

import type { GrammarSurvey } from './dead-ends.ts'
import { surveyGrammar } from './dead-ends.ts'
import type { Grammar } from './grammar.ts'

/** The possible continuations of a text. The same set is always the same object. */
export interface AutomatonState {
  /** Whether the text may end here. */
  readonly isAccepting: boolean
  /** Whether the text cannot continue. */
  readonly isFinal: boolean
  readonly tops: readonly Frame[]
  /**
   * By byte: a state, null if the text would be invalid, undefined if the transition is not
   * computed yet.
   */
  readonly next: (AutomatonState | null | undefined)[]
  /** Built when a state has many stacks and the first byte is read. */
  readers?: Readers
}

/** The frames of a state, by the bytes they read. */
interface Readers {
  /** Frames by the byte that they read next. */
  readonly byByte: ReadonlyMap<number, readonly Frame[]>
  /** Frames that read any of several bytes. */
  readonly ofSets: readonly Frame[]
}

/** The remainder of one node, followed by the frames below it. */
interface Frame {
  readonly id: number
  readonly grammar: Grammar
  /** Bytes read, parts completed or rounds made, depending on the node's kind. */
  readonly position: number
  readonly below: Frame | null
}

const FRAMES_PER_STEP_MAX = 20_000
const STATES_MAX = 20_000
const FRAMES_MAX = 200_000
const UNSORTED_TOPS_MAX = 16 // scanned for each byte; larger sets are indexed
const CLOSED_FRAMES_MAX = 4096 // a longer key costs about as much as what it finds
const BYTES_PER_STATE = 2300 // with its transitions
const BYTES_PER_FRAME = 200 // with its key
const BYTES_PER_PART = 300 // of the grammar itself

/**
 * Reads bytes against a grammar. A possible continuation is a stack of frames. Stacks are shared
 * and numbered, so that a set of them is a state of a lazily built deterministic automaton: the
 * first visit of a (state, byte) pair expands the grammar, every later one is an array lookup.
 */
export class Automaton {
  readonly start: AutomatonState
  /** No text can be completed after entering one of these. */
  readonly #deadEnds: Set<Grammar>
  /** Grammars of the parts that are built when a text first reaches them. */
  readonly #made = new Map<Grammar, Grammar>()
  readonly #frames = new Map<string, Frame>()
  readonly #states = new Map<string, AutomatonState>()
  /** By the frames before expansion, because most bytes of a class lead to the same set. */
  readonly #closed = new Map<string, AutomatonState>()
  #closedKeyBytes = 0
  #numParts: number
  #frameCount = 0
  #framesExpanded = 0
  readonly #budget: WorkBudget | undefined

  /** `survey` is the known analysis of the grammar; `budget` is charged for each frame. */
  constructor(
    grammar: Grammar,
    { budget, survey }: { readonly budget?: WorkBudget; readonly survey?: GrammarSurvey } = {},
  ) {
    this.#budget = budget
    const { deadEnds, numParts } = survey ?? surveyGrammar(grammar)
    if (survey === undefined) budget?.charge(numParts)
    this.#deadEnds = new Set(deadEnds)
    this.#numParts = numParts
    this.start = this.#close([this.#frame(grammar, 0, null)])
  }

  /** The approximate memory of the grammar and its computed part. */
  get bytes(): number {
    return (
      this.#numParts * BYTES_PER_PART +
      this.#states.size * BYTES_PER_STATE +
      (this.#frames.size + this.#closed.size) * BYTES_PER_FRAME +
      this.#closedKeyBytes
    )
  }

  /** The number of frames computed so far, which measures the work done. */
  get framesExpanded(): number {
    return this.#framesExpanded
  }

  /** The state after one more byte, or null when the grammar forbids it. */
  step(state: AutomatonState, byte: number): AutomatonState | null {
    const known = state.next[byte]
    if (known !== undefined) return known
    const pending: (Frame | null)[] = []
    const read = ({ grammar, position, below }: Frame): void => {
      if (grammar.kind === 'oneOf' && grammar.members[byte] === 1) pending.push(below)
      if (grammar.kind === 'bytes' && grammar.bytes[position] === byte) {
        pending.push(this.#frame(grammar, position + 1, below))
      }
    }
    if (state.tops.length <= UNSORTED_TOPS_MAX) state.tops.forEach(read)
    else {
      state.readers ??= sortReaders(state.tops)
      state.readers.byByte.get(byte)?.forEach(read)
      state.readers.ofSets.forEach(read)
    }
    const found = pending.length === 0 ? null : this.#closeOnce(pending)
    state.next[byte] = found
    return found
  }

  #closeOnce(pending: (Frame | null)[]): AutomatonState {
    if (pending.length > CLOSED_FRAMES_MAX) return this.#close(pending)
    const key = pending.map((frame) => frame?.id ?? 0).join(' ')
    const known = this.#closed.get(key)
    if (known !== undefined) return known
    const state = this.#close(pending)
    this.#closed.set(key, state)
    this.#closedKeyBytes += key.length
    return state
  }

  /** Expands frames until each stack begins with one that reads a byte. */
  #close(pending: (Frame | null)[]): AutomatonState {
    const tops = new Map<number, Frame>()
    const seen = new Set<number>()
    let isAccepting = false
    while (pending.length > 0) {
      const frame = pending.pop() as Frame | null
      if (frame === null) {
        isAccepting = true
        continue
      }
      if (seen.has(frame.id) || this.#deadEnds.has(frame.grammar)) continue
      seen.add(frame.id)
      this.#budget?.charge()
      if (seen.size > FRAMES_PER_STEP_MAX) throw new GrammarTooAmbiguousError()
      if (readsByte(frame)) tops.set(frame.id, frame)
      else this.#expand(frame, pending)
    }
    this.#framesExpanded += seen.size
    return this.#state([...tops.values()], isAccepting)
  }

  #expand({ grammar, position, below }: Frame, pending: (Frame | null)[]): void {
    switch (grammar.kind) {
      case 'bytes':
      case 'oneOf':
        pending.push(below)
        return
      case 'reference':
        pending.push(this.#frame(grammar.resolve(), 0, below))
        return
      case 'later':
        pending.push(this.#frame(this.#made.get(grammar) ?? this.#make(grammar), 0, below))
        return
      case 'choice':
        for (const option of grammar.options) pending.push(this.#frame(option, 0, below))
        return
      case 'sequence': {
        const part = grammar.parts[position]
        const isLast = position >= grammar.parts.length - 1
        const rest = isLast ? below : this.#frame(grammar, position + 1, below)
        pending.push(part === undefined ? below : this.#frame(part, 0, rest))
        return
      }
      case 'repeat': {
        if (position >= grammar.min) pending.push(below)
        if (position >= grammar.max) return
        // Without an upper bound, rounds beyond the lower one need not be counted.
        const rounds =
          grammar.max === Number.POSITIVE_INFINITY
            ? Math.min(position + 1, grammar.min)
            : position + 1
        pending.push(this.#frame(grammar.body, 0, this.#frame(grammar, rounds, below)))
        return
      }
    }
  }

  #make(part: Grammar & { readonly kind: 'later' }): Grammar {
    const made = part.make()
    const { deadEnds, numParts } = surveyGrammar(made)
    for (const deadEnd of deadEnds) this.#deadEnds.add(deadEnd)
    this.#numParts += numParts
    this.#made.set(part, made)
    return made
  }

  #frame(grammar: Grammar, position: number, below: Frame | null): Frame {
    const key = `${grammar.id} ${position} ${below?.id ?? 0}`
    const known = this.#frames.get(key)
    if (known !== undefined) return known
    this.#frameCount += 1
    const frame = { id: this.#frameCount, grammar, position, below }
    this.#frames.set(key, frame)
    return frame
  }

  #state(tops: Frame[], isAccepting: boolean): AutomatonState {
    tops.sort((a, b) => a.id - b.id)
    const key = `${isAccepting} ${tops.map((frame) => frame.id).join(' ')}`
    const known = this.#states.get(key)
    if (known !== undefined) return known
    if (this.#states.size >= STATES_MAX || this.#frames.size >= FRAMES_MAX) this.#drop()
    const state = { isAccepting, isFinal: tops.length === 0, tops, next: new Array(256) }
    this.#states.set(key, state)
    return state
  }

  /**
   * Bounds the memory: states in use stay referenced by their holders; others are computed again.
   */
  #drop(): void {
    this.#states.clear()
    this.#frames.clear()
    this.#closed.clear()
    this.#closedKeyBytes = 0
    this.start.next.fill(undefined)
  }
}

/** The grammar allows too many readings of one text, for instance by deeply nested repetitions. */
export class GrammarTooAmbiguousError extends Error {
  constructor() {
    super('the grammar is too ambiguous')
    this.name = 'GrammarTooAmbiguousError'
  }
}

function sortReaders(tops: readonly Frame[]): Readers {
  const byByte = new Map<number, Frame[]>()
  const ofSets: Frame[] = []
  for (const frame of tops) {
    const { grammar, position } = frame
    const byte = grammar.kind === 'bytes' ? grammar.bytes[position] : undefined
    if (byte === undefined) ofSets.push(frame)
    else {
      const frames = byByte.get(byte)
      if (frames === undefined) byByte.set(byte, [frame])
      else frames.push(frame)
    }
  }
  return { byByte, ofSets }
}

function readsByte({ grammar, position }: Frame): boolean {
  if (grammar.kind === 'oneOf') return true
  return grammar.kind === 'bytes' && position < grammar.bytes.length
}
