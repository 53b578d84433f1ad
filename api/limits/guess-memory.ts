/** The actions on the counts: read the wait, reset after a success, or add a failure. */
export type GuessAction = 'look' | 'right' | 'wrong'

/** The number of failures after which delays start, and their length. */
export interface GuessRule {
  /** Failures without a delay. */
  readonly free: number
  /** After this time one failure expires. */
  readonly decayMs: number
  readonly firstWaitMs: number
  readonly waitMsMax: number
  /** How long a pair of account and network stays known after a success. */
  readonly knownMs: number
}

interface Count {
  readonly level: number
  readonly atMs: number
  readonly releaseMs: number
}

const COUNTS_MAX = 30_000

/**
 * The counts of one process, used while Redis is unreachable. Beyond 30,000 the oldest are dropped.
 */
export function createGuessMemory(rules: readonly GuessRule[]) {
  const counts = new Map<string, Count>()
  const known = new Map<string, number>()
  return {
    /**
     * The milliseconds to wait, 0 for none. The keys are one for each rule, then that of the known
     * pair.
     */
    apply(keys: readonly string[], action: GuessAction, nowMs: number): number {
      const knownKey = keys[rules.length] ?? ''
      const isKnown = (known.get(knownKey) ?? 0) > nowMs
      const waits = rules
        .slice(0, isKnown ? 1 : rules.length)
        .map((_rule, index) => (counts.get(keys[index] ?? '')?.releaseMs ?? 0) - nowMs)
      const waitMs = Math.max(0, ...waits)
      if (waitMs > 0 || action === 'look') return Math.ceil(waitMs)
      if (action === 'right') {
        for (const key of keys.slice(0, 2)) counts.delete(key)
        keep(known, knownKey, nowMs + (rules[0]?.knownMs ?? 0))
        return 0
      }
      for (const [index, rule] of rules.entries()) {
        const key = keys[index] ?? ''
        keep(counts, key, countFailure(counts.get(key), rule, nowMs))
      }
      return 0
    },
  }
}

function countFailure(before: Count | undefined, rule: GuessRule, nowMs: number): Count {
  const { level: old = 0, atMs = nowMs, releaseMs = 0 } = before ?? {}
  const level = Math.max(0, old - Math.max(0, nowMs - atMs) / rule.decayMs) + 1
  const over = Math.ceil(level) - rule.free + 1
  const waitMs = Math.min(rule.waitMsMax, rule.firstWaitMs * 2 ** (over - 1))
  return { level, atMs: nowMs, releaseMs: over > 0 ? nowMs + waitMs : releaseMs }
}

function keep<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key)
  map.set(key, value)
  const oldest = map.keys().next()
  if (map.size > COUNTS_MAX && oldest.done !== true) map.delete(oldest.value)
}
