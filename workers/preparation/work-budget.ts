/**
 * Steps for all preparation of one request; a step takes some 0.2 µs, so all take at most a second.
 */
export const PREPARATION_STEPS_MAX = 5_000_000

/** Thrown by the construction step that exceeds a budget. */
export class BudgetExceededError extends Error {
  readonly budget: WorkBudget

  constructor(budget: WorkBudget) {
    super('the request takes more steps to prepare than its budget has')
    this.name = 'BudgetExceededError'
    this.budget = budget
  }
}

/**
 * Counts construction steps, so that absurd input fails at the same step on every machine. A nested
 * budget also charges the outer one.
 */
export class WorkBudget {
  #stepsMax: number
  readonly #parent: WorkBudget | undefined
  #used = 0

  constructor(stepsMax = PREPARATION_STEPS_MAX, parent?: WorkBudget) {
    this.#stepsMax = stepsMax
    this.#parent = parent
  }

  get used(): number {
    return this.#used
  }

  /** Whether it covers a whole request, rather than a part or a first attempt. */
  get isWhole(): boolean {
    return this.#parent === undefined && this.#stepsMax >= PREPARATION_STEPS_MAX
  }

  get left(): number {
    return Math.max(this.#stepsMax - this.#used, 0)
  }

  /** Throws `BudgetExceededError` when the steps exceed what is left. */
  charge(steps = 1): void {
    this.#used += steps
    if (this.#used > this.#stepsMax) throw new BudgetExceededError(this)
    this.#parent?.charge(steps)
  }

  /** Steps for reading or writing a text. */
  chargeText(length: number): void {
    this.charge(1 + Math.ceil(length / CHARACTERS_PER_STEP))
  }

  /** Allows for parts of the same work that follow later. */
  extend(steps: number): void {
    this.#stepsMax = this.#used + steps
  }

  within(stepsMax: number): WorkBudget {
    return new WorkBudget(stepsMax, this)
  }
}

const CHARACTERS_PER_STEP = 16
