import type { WorkBudget } from '../../preparation/work-budget.ts'

/** The JSON text of a value with sorted member names: equal values have equal texts. */
export function canonicalText(value: unknown, budget: WorkBudget): string {
  const text = JSON.stringify(value, (_name, held: unknown) => {
    budget.charge()
    if (typeof held !== 'object' || held === null || Array.isArray(held)) return held
    const entries = Object.entries(held)
    return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
  })
  budget.chargeText(text?.length ?? 0)
  return text ?? ''
}
