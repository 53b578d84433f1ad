import { type Clock, withinTime } from './clock.ts'
import type { Logger } from './logger.ts'

/** A service that requests need. */
export interface Dependency {
  readonly name: string
  /** Whether no request can be served without it. */
  readonly isRequired: boolean
  /** A hint for the operator when it fails. */
  readonly remedy: string
  /** The hint for one failure, where it differs. */
  remedyFor?(error: Error): string | undefined
  /** Rejects when the service does not work. */
  check(): Promise<unknown>
}

/** The state of a dependency, and the time since which it holds. */
export interface DependencyState {
  readonly name: string
  readonly isRequired: boolean
  readonly remedy: string
  readonly isOk: boolean
  readonly sinceMs: number
  /** Why the last check failed, for operators; absent after a success. */
  readonly reason?: string
}

/** Below the timeout of the probes in `deploy/helm`. */
const CHECK_TIMEOUT_MS = 2000
/** Probes, metrics and consoles that ask within this interval share one check. */
const KEPT_MS = 500
const WATCH_INTERVAL_MS = 10_000
/** While a dependency fails: its recovery must not be missed, else the next failure looks older. */
const FAILING_INTERVAL_MS = 2000
const REASON_LENGTH_MAX = 300

/** Checks the dependencies of a process, and logs every change with its reason. */
export class Dependencies {
  readonly #list: readonly Dependency[]
  readonly #clock: Clock
  readonly #log: Logger
  readonly #changes = new Map<string, { readonly isOk: boolean; readonly sinceMs: number }>()
  readonly #failing = new Map<string, DependencyState>()
  #latest:
    | { readonly atMs: number; readonly states: Promise<readonly DependencyState[]> }
    | undefined

  constructor(list: readonly Dependency[], tools: { readonly clock: Clock; readonly log: Logger }) {
    this.#list = list
    this.#clock = tools.clock
    this.#log = tools.log
  }

  /** The dependencies that failed their last check. */
  get failing(): readonly DependencyState[] {
    return [...this.#failing.values()]
  }

  /** The states of all dependencies; never rejects. */
  states(): Promise<readonly DependencyState[]> {
    const atMs = this.#clock.monotonic()
    if (this.#latest === undefined || atMs - this.#latest.atMs > KEPT_MS) {
      this.#latest = { atMs, states: Promise.all(this.#list.map((each) => this.#check(each))) }
    }
    return this.#latest.states
  }

  /** Checks at once and at an interval, so that failures are logged without requests. */
  watch(signal: AbortSignal): void {
    let timer: NodeJS.Timeout | undefined
    const look = async (): Promise<void> => {
      await this.states()
      if (signal.aborted) return
      const isFailing = this.#failing.size > 0
      timer = setTimeout(look, isFailing ? FAILING_INTERVAL_MS : WATCH_INTERVAL_MS).unref()
    }
    void look()
    signal.addEventListener('abort', () => clearTimeout(timer), { once: true })
  }

  async #check(dependency: Dependency): Promise<DependencyState> {
    const state = await this.#stateOf(dependency)
    if (state.isOk) this.#failing.delete(state.name)
    else this.#failing.set(state.name, state)
    return state
  }

  async #stateOf(dependency: Dependency): Promise<DependencyState> {
    const { name, isRequired } = dependency
    const err = await failureOf(() => dependency.check())
    const isOk = err === undefined
    const remedy = (err && dependency.remedyFor?.(err)) ?? dependency.remedy
    const state = { name, isRequired, remedy, ...(!isOk && { reason: textOf(err) }) }
    const known = this.#changes.get(name)
    if (known?.isOk === isOk) return { ...state, ...known }
    const change = { isOk, sinceMs: this.#clock.now() }
    this.#changes.set(name, change)
    const operation = 'dependency.check'
    if (!isOk) this.#log.error({ operation, dependency: name, err }, `${name} fails: ${remedy}`)
    else if (known !== undefined)
      this.#log.info({ operation, dependency: name }, `${name} works again`)
    return { ...state, ...change }
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

function textOf({ message }: Error): string {
  return message.split('\n', 1).join('').slice(0, REASON_LENGTH_MAX)
}
