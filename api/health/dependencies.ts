import { type Clock, withinTime } from '#shared/clock.ts'
import type { Logger } from '#shared/logger.ts'

/** A service that requests need. */
export interface Dependency {
  readonly name: string
  /** Whether no request can be served without it. */
  readonly isRequired: boolean
  /** A hint for the operator when it fails. */
  readonly remedy: string
  /** Rejects when the service does not work. */
  check(): Promise<unknown>
}

/** The state of a dependency, and since when it holds. */
export interface DependencyState {
  readonly name: string
  readonly isRequired: boolean
  readonly remedy: string
  readonly isOk: boolean
  readonly sinceMs: number
}

/** Below the timeout of the probes in `deploy/helm`. */
const CHECK_TIMEOUT_MS = 2000
/** Probes, metrics and consoles of one interval share a check. */
const KEPT_MS = 500

/** Checks the dependencies of this process on request, and logs every change with its reason. */
export class Dependencies {
  readonly #list: readonly Dependency[]
  readonly #clock: Clock
  readonly #log: Logger
  readonly #changes = new Map<string, { readonly isOk: boolean; readonly sinceMs: number }>()
  #latest:
    | { readonly atMs: number; readonly states: Promise<readonly DependencyState[]> }
    | undefined

  constructor(list: readonly Dependency[], tools: { readonly clock: Clock; readonly log: Logger }) {
    this.#list = list
    this.#clock = tools.clock
    this.#log = tools.log
  }

  /** The states of all dependencies; never rejects. */
  states(): Promise<readonly DependencyState[]> {
    const atMs = this.#clock.monotonic()
    if (this.#latest === undefined || atMs - this.#latest.atMs > KEPT_MS) {
      this.#latest = { atMs, states: Promise.all(this.#list.map((each) => this.#check(each))) }
    }
    return this.#latest.states
  }

  async #check({ name, isRequired, remedy, check }: Dependency): Promise<DependencyState> {
    const reason = await failureOf(check)
    const isOk = reason === undefined
    const known = this.#changes.get(name)
    if (known?.isOk === isOk) return { name, isRequired, remedy, ...known }
    const change = { isOk, sinceMs: this.#clock.now() }
    this.#changes.set(name, change)
    const operation = 'dependency.check'
    if (!isOk)
      this.#log.error({ operation, dependency: name, err: reason }, `${name} fails: ${remedy}`)
    else if (known !== undefined)
      this.#log.info({ operation, dependency: name }, `${name} works again`)
    return { name, isRequired, remedy, ...change }
  }
}

async function failureOf(check: () => Promise<unknown>): Promise<Error | undefined> {
  const late = () => new Error(`no answer within ${CHECK_TIMEOUT_MS} ms`)
  try {
    await withinTime(check(), CHECK_TIMEOUT_MS, late)
    return undefined
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error))
  }
}
