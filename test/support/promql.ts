import { type Sample, scrape } from './metrics-text.ts'
import { type Expression, type Matcher, parsePromql } from './promql-parser.ts'

/** The samples of all targets at one moment. */
export interface Snapshot {
  readonly atMs: number
  readonly samples: readonly Sample[]
}

/** A target as the scrape configuration names it. */
export interface Target {
  readonly job: string
  readonly url: string
}

type Labels = Readonly<Record<string, string>>

/** One element of an instant vector. */
export interface Element {
  readonly labels: Labels
  readonly value: number
}

/** Scrapes every target once, as Prometheus does: with its labels, and `up` for each. */
export async function takeSnapshot(targets: readonly Target[]): Promise<Snapshot> {
  const atMs = Date.now()
  const parts = await Promise.all(
    targets.map(async ({ job, url }) => {
      const own = { job, instance: new URL(url).host }
      const found = await scrape(url).catch(() => undefined)
      const up = { name: 'up', labels: own, value: found === undefined ? 0 : 1 }
      return [
        up,
        ...(found ?? []).map((sample) => ({ ...sample, labels: { ...sample.labels, ...own } })),
      ]
    }),
  )
  return { atMs, samples: parts.flat() }
}

/**
 * The answer to a query after these snapshots, of which the last is now. Like Prometheus, `rate`
 * and `increase` need a series in two snapshots at least and take a fall for a restart; unlike it,
 * they do not extrapolate beyond what was seen, which only makes them smaller.
 */
export function evaluate(query: string, snapshots: readonly Snapshot[]): Element[] {
  const value = resolve(parsePromql(query), snapshots)
  return typeof value === 'number' ? [{ labels: {}, value }] : value
}

type Value = number | Element[]

function resolve(expression: Expression, snapshots: readonly Snapshot[]): Value {
  switch (expression.kind) {
    case 'number':
      return expression.value
    case 'selector':
      return select(expression, snapshots.slice(-1))
    case 'call':
      return call(expression, snapshots)
    case 'aggregate':
      return aggregate(expression, vectorOf(expression.of, snapshots))
    case 'binary':
      return combine(
        expression.operator,
        resolve(expression.left, snapshots),
        resolve(expression.right, snapshots),
      )
  }
}

function vectorOf(expression: Expression, snapshots: readonly Snapshot[]): Element[] {
  const value = resolve(expression, snapshots)
  if (typeof value === 'number') throw new Error('a vector was expected')
  return value
}

function select(
  { name, matchers }: Expression & { readonly kind: 'selector' },
  [snapshot]: readonly Snapshot[],
): Element[] {
  return (snapshot?.samples ?? [])
    .filter((sample) => sample.name === name && matchers.every((matcher) => fits(sample, matcher)))
    .map(({ labels, value }) => ({ labels, value }))
}

function fits({ labels }: Sample, { label, operator, value }: Matcher): boolean {
  const actual = labels[label] ?? ''
  switch (operator) {
    case '=':
      return actual === value
    case '!=':
      return actual !== value
    case '=~':
      return new RegExp(`^(?:${value})$`).test(actual)
    case '!~':
      return !new RegExp(`^(?:${value})$`).test(actual)
  }
}

function call(
  { name, args }: Expression & { readonly kind: 'call' },
  snapshots: readonly Snapshot[],
): Element[] {
  const [first, second] = args
  if (name === 'histogram_quantile') {
    if (first?.kind !== 'number' || second === undefined) throw new Error(`${name}: arguments`)
    return histogramQuantile(first.value, vectorOf(second, snapshots))
  }
  if (name === 'absent') {
    if (first === undefined) throw new Error(`${name}: arguments`)
    return vectorOf(first, snapshots).length === 0 ? [{ labels: {}, value: 1 }] : []
  }
  if (first?.kind !== 'selector' || first.rangeMs === undefined) {
    throw new Error(`${name} takes a range of a series`)
  }
  return growth(first, snapshots, first.rangeMs).map(({ labels, value, seconds }) => ({
    labels,
    value: name === 'rate' ? value / seconds : value,
  }))
}

function growth(
  selector: Expression & { readonly kind: 'selector' },
  snapshots: readonly Snapshot[],
  rangeMs: number,
): (Element & { readonly seconds: number })[] {
  const nowMs = snapshots.at(-1)?.atMs ?? 0
  const series = new Map<string, { labels: Labels; points: { atMs: number; value: number }[] }>()
  for (const snapshot of snapshots.filter(({ atMs }) => nowMs - atMs <= rangeMs)) {
    for (const { labels, value } of select(selector, [snapshot])) {
      const key = keyOf(labels)
      const entry = series.get(key) ?? { labels, points: [] }
      series.set(key, entry)
      entry.points.push({ atMs: snapshot.atMs, value })
    }
  }
  return [...series.values()].flatMap(({ labels, points }) => {
    if (points.length < 2) return []
    const value = points.slice(1).reduce((sum, point, index) => {
      const before = points[index]?.value ?? 0
      return sum + (point.value < before ? point.value : point.value - before)
    }, 0)
    const seconds = ((points.at(-1)?.atMs ?? 0) - (points[0]?.atMs ?? 0)) / 1000
    return [{ labels, value, seconds }]
  })
}

/** Interpolates within the bucket that the quantile falls into, as Prometheus does. */
function histogramQuantile(quantile: number, elements: readonly Element[]): Element[] {
  return groups(elements, (labels) => without(labels, 'le')).flatMap(({ labels, members }) => {
    const buckets = members
      .map((member) => ({ bound: boundOf(member.labels.le), total: member.value }))
      .sort((a, b) => a.bound - b.bound)
    const last = buckets.at(-1)
    if (last?.bound !== Number.POSITIVE_INFINITY || buckets.length < 2) return []
    if (last.total === 0) return [{ labels, value: Number.NaN }]
    const rank = quantile * last.total
    const index = buckets.findIndex(({ total }) => total >= rank)
    const found = buckets[index] ?? last
    const before = buckets[index - 1] ?? { bound: 0, total: 0 }
    if (found.bound === Number.POSITIVE_INFINITY) return [{ labels, value: before.bound }]
    const share = (rank - before.total) / (found.total - before.total)
    return [{ labels, value: before.bound + (found.bound - before.bound) * share }]
  })
}

function boundOf(le: string | undefined): number {
  return le === '+Inf' ? Number.POSITIVE_INFINITY : Number(le)
}

function aggregate(
  { operator, by }: Expression & { readonly kind: 'aggregate' },
  elements: readonly Element[],
): Element[] {
  const keep = (labels: Labels): Labels =>
    Object.fromEntries(by.flatMap((name) => (labels[name] ? [[name, labels[name]]] : [])))
  return groups(elements, keep).map(({ labels, members }) => {
    const values = members.map(({ value }) => value)
    const sum = values.reduce((total, value) => total + value, 0)
    switch (operator) {
      case 'sum':
        return { labels, value: sum }
      case 'avg':
        return { labels, value: sum / values.length }
      case 'max':
        return { labels, value: Math.max(...values) }
      case 'min':
        return { labels, value: Math.min(...values) }
      default:
        return { labels, value: values.length }
    }
  })
}

/** A comparison keeps what it holds for; vectors meet where all their labels are the same. */
function combine(operator: string, left: Value, right: Value): Value {
  if (typeof left === 'number' && typeof right === 'number') return compute(operator, left, right)
  if (typeof left === 'number') throw new Error('a number on the left is not known here')
  if (operator === 'and') {
    const keys = new Set((right as Element[]).map(({ labels }) => keyOf(labels)))
    return left.filter(({ labels }) => keys.has(keyOf(labels)))
  }
  const others =
    typeof right === 'number'
      ? undefined
      : new Map(right.map(({ labels, value }) => [keyOf(labels), value]))
  return left.flatMap(({ labels, value }) => {
    const other = typeof right === 'number' ? right : others?.get(keyOf(labels))
    if (other === undefined) return []
    if (isComparison(operator))
      return compute(operator, value, other) === 1 ? [{ labels, value }] : []
    return [{ labels, value: compute(operator, value, other) }]
  })
}

function isComparison(operator: string): boolean {
  return ['==', '!=', '>', '<', '>=', '<='].includes(operator)
}

const OPERATIONS: Readonly<Record<string, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
  '==': (a, b) => Number(a === b),
  '!=': (a, b) => Number(a !== b),
  '>': (a, b) => Number(a > b),
  '<': (a, b) => Number(a < b),
  '>=': (a, b) => Number(a >= b),
  '<=': (a, b) => Number(a <= b),
}

function compute(operator: string, a: number, b: number): number {
  const operation = OPERATIONS[operator]
  if (operation === undefined) throw new Error(`${operator} is not known here`)
  return operation(a, b)
}

function groups(
  elements: readonly Element[],
  labelsOf: (labels: Labels) => Labels,
): { labels: Labels; members: Element[] }[] {
  const found = new Map<string, { labels: Labels; members: Element[] }>()
  for (const element of elements) {
    const labels = labelsOf(element.labels)
    const key = keyOf(labels)
    const group = found.get(key) ?? { labels, members: [] }
    found.set(key, group)
    group.members.push(element)
  }
  return [...found.values()]
}

function without(labels: Labels, name: string): Labels {
  const { [name]: _, ...others } = labels
  return others
}

function keyOf(labels: Labels): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)))
}
