import type { Metric } from './metrics.ts'

type Threshold = string | { readonly threshold: string }

const EXPRESSION = /^(count|rate|avg|min|med|max|p\(\d+\))\s*(<=|>=|==|<|>)\s*([\d.]+)$/

/**
 * Which thresholds are met, by metric and expression. A metric without values meets all of them.
 */
export function thresholdsOf(
  wanted: Readonly<Record<string, readonly Threshold[]>>,
  metrics: ReadonlyMap<string, Metric>,
): ReadonlyMap<string, Readonly<Record<string, { ok: boolean }>>> {
  return new Map(
    Object.entries(wanted).map(([name, thresholds]) => {
      const texts = thresholds.map((one) => (typeof one === 'string' ? one : one.threshold))
      const values = metrics.get(name)?.values ?? {}
      return [name, Object.fromEntries(texts.map((text) => [text, { ok: isMet(text, values) }]))]
    }),
  )
}

function isMet(text: string, values: Readonly<Record<string, number>>): boolean {
  const [, figure = '', operator, limit] = EXPRESSION.exec(text) ?? []
  if (operator === undefined) throw new Error(`no threshold: ${text}`)
  const value = values[figure]
  if (value === undefined) return true
  const bound = Number(limit)
  switch (operator) {
    case '<':
      return value < bound
    case '<=':
      return value <= bound
    case '>':
      return value > bound
    case '>=':
      return value >= bound
    default:
      return value === bound
  }
}
