/** The index of the largest value, the lowest of equals; -1 when no value is a number above -∞. */
export function argmax(values: Float32Array): number {
  let best = -1
  let bestValue = Number.NEGATIVE_INFINITY
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index] as number
    if (value > bestValue) {
      bestValue = value
      best = index
    }
  }
  return best
}

/**
 * The indices of the `count` largest values, largest first, lower indices first among equals.
 * Keeps a small sorted list, so that most values cost a single comparison.
 */
export function selectLargest(values: Float32Array, count: number): number[] {
  const kept: number[] = []
  let threshold = Number.NEGATIVE_INFINITY
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index] as number
    if (kept.length >= count && !(value > threshold)) continue
    if (Number.isNaN(value)) continue
    let place = kept.length
    while (place > 0 && (values[kept[place - 1] as number] as number) < value) place -= 1
    kept.splice(place, 0, index)
    if (kept.length > count) kept.pop()
    if (kept.length === count) threshold = values[kept[count - 1] as number] as number
  }
  return kept
}

const FEW = 64

/** The `rank`-th largest value, counted from 1. */
export function largestValueAt(values: Float32Array, rank: number): number {
  if (rank <= FEW) {
    const index = selectLargest(values, rank).at(-1)
    return index === undefined ? Number.NEGATIVE_INFINITY : (values[index] as number)
  }
  const sorted = values.slice().sort()
  return sorted[Math.max(sorted.length - rank, 0)] as number
}
