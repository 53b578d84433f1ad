import type { WorkBudget } from '../preparation/work-budget.ts'
import type { Value } from './template-values.ts'

/** To copy a value, or to parse it, takes about 0.8 µs. */
const STEPS_PER_VALUE = 4
/** Above the depth that the API accepts. */
const DEPTH_MAX = 256

interface Open {
  readonly value: unknown
  readonly depth: number
}

/** Charges for each value within a JSON value. A stack of its own bounds the depth before anything recurses. */
export function chargeValues(root: unknown, budget: WorkBudget): void {
  const open: Open[] = [{ value: root, depth: 0 }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, depth } = next
    budget.charge(STEPS_PER_VALUE)
    if (typeof value === 'string') budget.chargeText(value.length)
    if (typeof value !== 'object' || value === null) continue
    assertDepth(depth)
    const held = Array.isArray(value) ? value : Object.values(value)
    for (const inner of held) open.push({ value: inner, depth: depth + 1 })
  }
}

/** The number of values within a template value, which is what writing it takes. */
export function countValues(root: Value): number {
  const open: { readonly value: Value; readonly depth: number }[] = [{ value: root, depth: 0 }]
  let count = 0
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, depth } = next
    count += 1
    if (value.type !== 'ArrayValue' && value.type !== 'ObjectValue') continue
    assertDepth(depth)
    for (const inner of value.value.values()) open.push({ value: inner, depth: depth + 1 })
  }
  return count
}

function assertDepth(depth: number): void {
  if (depth >= DEPTH_MAX) throw new Error('the values are nested too deeply')
}
