import { quantile } from '../quantile.ts'

// Replaces the imports of a scenario file from `k6/metrics` where there is no k6.

type Kind = 'trend' | 'rate' | 'counter'

/** Everything that was added to a metric. */
export class Metric {
  readonly kind: Kind
  readonly #values: number[] = []

  constructor(kind: Kind) {
    this.kind = kind
  }

  add(value: number | boolean): void {
    this.#values.push(Number(value))
  }

  /** The figures that k6 gives of a metric of this kind. */
  get values(): Readonly<Record<string, number>> {
    const values = this.#values
    const sum = values.reduce((total, value) => total + value, 0)
    if (this.kind === 'counter') return { count: sum }
    if (this.kind === 'trend') return this.#trend(sum)
    const counts = { passes: sum, fails: values.length - sum }
    return values.length === 0 ? counts : { rate: sum / values.length, ...counts }
  }

  #trend(sum: number): Readonly<Record<string, number>> {
    const count = this.#values.length
    if (count === 0) return { count }
    const at = (share: number): number => quantile(this.#values, share)
    return {
      count,
      avg: sum / count,
      min: at(0),
      med: at(0.5),
      max: at(1),
      'p(90)': at(0.9),
      'p(95)': at(0.95),
      'p(99)': at(0.99),
    }
  }
}

const METRICS = new Map<string, Metric>()

/** The metric of a name, made when it is first asked for. */
export function metric(name: string, kind: Kind): Metric {
  const known = METRICS.get(name) ?? new Metric(kind)
  METRICS.set(name, known)
  return known
}

/** All of them by name. */
export function allMetrics(): ReadonlyMap<string, Metric> {
  return METRICS
}

/** A metric under the name that the file gives it. */
function named(kind: Kind): new (name: string) => Metric {
  return class extends Metric {
    constructor(name: string) {
      super(kind)
      METRICS.set(name, this)
    }
  }
}

export const Trend = named('trend')
export const Rate = named('rate')
export const Counter = named('counter')
