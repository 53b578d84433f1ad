const UNROLLED = 8

/** The index of the largest value, the lowest index among equals; -1 when no value is above -∞. */
export function argmax(values: Float32Array): number {
  let best = -1
  let max = -Number.MAX_VALUE
  let at = nextAtLeast(values, max, 0)
  while (at < values.length) {
    if (best < 0 || (values[at] as number) > max) {
      max = values[at] as number
      best = at
    }
    at = nextAtLeast(values, max, at + 1)
  }
  return best
}

/**
 * The first index at or after `from` whose value reaches a threshold; the length when there is
 * none. Nearly all values are smaller: eight of them cost one branch.
 */
function nextAtLeast(values: Float32Array, threshold: number, from: number): number {
  const { length } = values
  let at = from
  for (; at + UNROLLED <= length; at += UNROLLED) {
    if (
      (values[at] as number) >= threshold ||
      (values[at + 1] as number) >= threshold ||
      (values[at + 2] as number) >= threshold ||
      (values[at + 3] as number) >= threshold ||
      (values[at + 4] as number) >= threshold ||
      (values[at + 5] as number) >= threshold ||
      (values[at + 6] as number) >= threshold ||
      (values[at + 7] as number) >= threshold
    ) {
      break
    }
  }
  while (at < length && !((values[at] as number) >= threshold)) at += 1
  return at
}

/**
 * The indices of the `count` largest values, largest first, lower indices first among equals. Only
 * values close to the largest are sorted.
 */
export function selectLargest(values: Float32Array, count: number): number[] {
  const indices = indicesFrom(values, largestValueAt(values, count))
  const byValue = (a: number, b: number): number =>
    (values[b] as number) - (values[a] as number) || a - b
  return indices.sort(byValue).slice(0, count)
}

const FIRST_DISTANCE = 4 // from the largest logit; usually contains one or two dozen others

/** The `rank`-th largest value, counted from 1; -∞ when there are fewer. */
export function largestValueAt(values: Float32Array, rank: number): number {
  const max = values[argmax(values)] ?? Number.NEGATIVE_INFINITY
  if (rank === 1 || max === Number.NEGATIVE_INFINITY) return max
  let distance = FIRST_DISTANCE
  let near = valuesFrom(values, max - distance)
  while (near.length < rank) {
    if (distance === Number.POSITIVE_INFINITY) return Number.NEGATIVE_INFINITY
    distance *= 2
    near = valuesFrom(values, max - distance)
  }
  // The range between half of this distance and all of it may still contain most of the vocabulary.
  for (let step = distance / 4; near.length > 2 * rank && step > distance / 64; step /= 2) {
    const nearer = valuesFrom(near, max - distance + step)
    if (nearer.length < rank) continue
    near = nearer
    distance -= step
  }
  return near.sort()[near.length - rank] as number
}

/** The values that reach a threshold, in order. */
function valuesFrom(values: Float32Array, threshold: number): Float32Array {
  const indices = indicesFrom(values, threshold)
  const found = new Float32Array(indices.length)
  for (let at = 0; at < indices.length; at += 1) found[at] = values[indices[at] as number] as number
  return found
}

/** The indices of the values that reach a threshold, rising. */
function indicesFrom(values: Float32Array, threshold: number): number[] {
  const indices: number[] = []
  let at = nextAtLeast(values, threshold, 0)
  while (at < values.length) {
    indices.push(at)
    at = nextAtLeast(values, threshold, at + 1)
  }
  return indices
}
