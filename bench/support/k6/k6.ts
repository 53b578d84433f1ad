import { metric } from './metrics.ts'

// Replaces the imports of a scenario file from `k6` where there is no k6.

const passes = new Map<string, { passes: number; fails: number }>()

/** Judges a value by named conditions, and counts what holds. */
export function check<Value>(
  value: Value,
  conditions: Readonly<Record<string, (value: Value) => unknown>>,
): boolean {
  let isGood = true
  for (const [name, holds] of Object.entries(conditions)) {
    const isMet = judge(holds, value)
    const count = passes.get(name) ?? { passes: 0, fails: 0 }
    count[isMet ? 'passes' : 'fails'] += 1
    passes.set(name, count)
    metric('checks', 'rate').add(isMet)
    isGood &&= isMet
  }
  return isGood
}

/** How often each condition held. */
export function checkCounts(): readonly { name: string; passes: number; fails: number }[] {
  return [...passes].map(([name, count]) => ({ name, ...count }))
}

function judge<Value>(holds: (value: Value) => unknown, value: Value): boolean {
  try {
    return Boolean(holds(value))
  } catch {
    // An answer of another shape than the condition reads does not meet it.
    return false
  }
}
