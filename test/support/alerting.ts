import { evaluate, type Snapshot } from './promql.ts'

/** A rule that fires once its expression has held for so long. */
export interface TimedRule {
  readonly expr: string
  readonly for?: string
}

const UNITS_MS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000 }

/** How long a rule's expression must hold, in milliseconds. Throws for what is not a duration. */
export function pendingMsOf({ for: text = '0s' }: TimedRule): number {
  const [, number, unit] = /^(\d+)([smh])$/.exec(text) ?? []
  if (number === undefined || unit === undefined) throw new Error(`no duration: ${text}`)
  return Number(number) * (UNITS_MS[unit] as number)
}

/**
 * Evaluates a rule at each snapshot, as Prometheus does at each interval: at which of them it
 * fires. One series' time begins anew when the expression stops to hold for it.
 */
export function firingTimes(rule: TimedRule, snapshots: readonly Snapshot[]): number[] {
  const pendingMs = pendingMsOf(rule)
  let since = new Map<string, number>()
  return snapshots.flatMap(({ atMs }, at) => {
    const found = evaluate(rule.expr, snapshots.slice(0, at + 1))
    since = new Map(
      found.map(({ labels }) => {
        const key = JSON.stringify(Object.entries(labels).sort())
        return [key, since.get(key) ?? atMs]
      }),
    )
    return [...since.values()].some((begun) => atMs - begun >= pendingMs) ? [atMs] : []
  })
}

const COUNTER = /_(total|count|sum|bucket)$/

/**
 * The samples that would be scraped if the state of these snapshots continued: at each step,
 * counters grow by as much as from the first to the last of them, and everything else stays at its
 * last value.
 */
export function goOn(
  snapshots: readonly Snapshot[],
  { steps, stepMs }: { readonly steps: number; readonly stepMs: number },
): Snapshot[] {
  const [first, last] = [snapshots[0], snapshots.at(-1)]
  if (first === undefined || last === undefined) return []
  const keyOf = ({ name, labels }: Snapshot['samples'][number]): string =>
    `${name} ${JSON.stringify(Object.entries(labels).sort())}`
  const before = new Map(first.samples.map((sample) => [keyOf(sample), sample.value]))
  const growing = last.samples.map((sample) => {
    const growth = COUNTER.test(sample.name) ? sample.value - (before.get(keyOf(sample)) ?? 0) : 0
    // A process that began anew in between counts from nothing.
    return { sample, growth: growth < 0 ? sample.value : growth }
  })
  return Array.from({ length: steps }, (_, index) => ({
    atMs: last.atMs + (index + 1) * stepMs,
    samples: growing.map(({ sample, growth }) => ({
      ...sample,
      value: sample.value + (index + 1) * growth,
    })),
  }))
}
