import type { WorkBudget } from '#workers/preparation/work-budget.ts'
import { BudgetExceededError } from '#workers/preparation/work-budget.ts'

import type { AutomatonState } from './automaton.ts'
import { Automaton, GrammarTooAmbiguousError } from './automaton.ts'
import type { Grammar, GrammarBuilder } from './grammar.ts'

const STATES_MAX = 2000
const STEPS_MAX = 1_200_000 // of all intersections of one schema together; a quarter of a second

/** The states of both automata after the same bytes, and the grammar from there on. */
interface Meeting {
  readonly states: readonly AutomatonState[]
  readonly rule: { grammar: Grammar | undefined }
}

/** Intersects grammars, each combination only once, within a budget of steps. */
export class Intersections {
  readonly #builder: GrammarBuilder
  readonly #known = new Map<string, Grammar>()
  readonly #budget: WorkBudget

  constructor(builder: GrammarBuilder) {
    this.#builder = builder
    this.#budget = builder.budget.within(STEPS_MAX)
  }

  /**
   * The texts that all grammars accept; `name` identifies the combination. Undefined when that
   * takes too many rules or too long, for instance for grammars with large counts.
   */
  of(name: string, grammars: readonly Grammar[]): Grammar | undefined {
    const known = this.#known.get(name)
    if (known !== undefined) return known
    const [first, ...others] = grammars
    let common = first
    for (const other of others) common = common && this.#intersect(common, other)
    if (common !== undefined) this.#known.set(name, common)
    return common
  }

  #intersect(a: Grammar, b: Grammar): Grammar | undefined {
    const budget = this.#budget
    try {
      const automata = [new Automaton(a, { budget }), new Automaton(b, { budget })]
      return new Walk(this.#builder, automata, budget).run()
    } catch (error) {
      if (error instanceof GrammarTooAmbiguousError) return undefined
      if (error instanceof BudgetExceededError && error.budget === budget) return undefined
      throw error
    }
  }
}

/**
 * Reads two grammars in parallel: each reached pair of states becomes a rule, which reads one byte
 * and continues with the rule of the next pair.
 */
class Walk {
  readonly #builder: GrammarBuilder
  readonly #automata: readonly Automaton[]
  readonly #budget: WorkBudget
  readonly #numbers = new Map<AutomatonState, number>()
  readonly #meetings = new Map<string, Meeting>()
  constructor(builder: GrammarBuilder, automata: readonly Automaton[], budget: WorkBudget) {
    this.#builder = builder
    this.#automata = automata
    this.#budget = budget
  }

  run(): Grammar | undefined {
    const start = this.#meet(this.#automata.map((automaton) => automaton.start))
    // A map iteration includes entries that are added during it.
    for (const meeting of this.#meetings.values()) {
      if (this.#meetings.size > STATES_MAX) return undefined
      meeting.rule.grammar = this.#ruleOf(meeting.states)
    }
    return start.rule.grammar
  }

  #ruleOf(states: readonly AutomatonState[]): Grammar {
    const bytesTo = new Map<Meeting, number[]>()
    for (let byte = 0; byte < 256; byte += 1) {
      const next = this.#step(states, byte)
      if (next === undefined) continue
      const meeting = this.#meet(next)
      const bytes = bytesTo.get(meeting)
      if (bytes === undefined) bytesTo.set(meeting, [byte])
      else bytes.push(byte)
    }
    const builder = this.#builder
    const ways = [...bytesTo].map(([{ rule }, bytes]) =>
      builder.sequence(
        builder.byte(...bytes.map((byte) => [byte, byte] as const)),
        builder.reference(() => rule.grammar as Grammar),
      ),
    )
    const mayEnd = states.every((state) => state.isAccepting)
    return builder.choice(...ways, ...(mayEnd ? [builder.literal('')] : []))
  }

  #step(states: readonly AutomatonState[], byte: number): AutomatonState[] | undefined {
    const next: AutomatonState[] = []
    for (const [index, state] of states.entries()) {
      this.#budget.charge()
      const reached = this.#automata[index]?.step(state, byte)
      if (reached === null || reached === undefined) return undefined
      next.push(reached)
    }
    return next
  }

  #meet(states: readonly AutomatonState[]): Meeting {
    const key = states.map((state) => this.#numberOf(state)).join(' ')
    const known = this.#meetings.get(key)
    if (known !== undefined) return known
    const meeting = { states, rule: { grammar: undefined } }
    this.#meetings.set(key, meeting)
    return meeting
  }

  #numberOf(state: AutomatonState): number {
    const known = this.#numbers.get(state)
    if (known !== undefined) return known
    this.#numbers.set(state, this.#numbers.size)
    return this.#numbers.size - 1
  }
}
