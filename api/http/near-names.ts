const DISTANCE_MAX = 2
const NAME_LENGTH_MAX = 64

/**
 * The known name that a misspelt name most likely means; undefined when none is similar. Long names
 * may differ by two edits, names of four and five characters by one, shorter ones by none.
 */
export function nearestName(name: string, known: Iterable<string>): string | undefined {
  if (name.length > NAME_LENGTH_MAX) return undefined
  let nearest: string | undefined
  let least = DISTANCE_MAX + 1
  for (const candidate of known) {
    const limit = Math.min(
      DISTANCE_MAX,
      Math.floor((Math.max(name.length, candidate.length) - 1) / 3),
    )
    if (Math.abs(name.length - candidate.length) > limit) continue
    const distance = editDistance(name, candidate)
    if (distance > limit || distance >= least) continue
    nearest = candidate
    least = distance
  }
  return nearest
}

/** Levenshtein's distance: insertions, deletions and substitutions of single characters. */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (let i = 1; i <= one.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= other.length; j += 1) {
      const substituted = (row[j - 1] as number) + (one[i - 1] === other[j - 1] ? 0 : 1)
      next.push(Math.min(substituted, (row[j] as number) + 1, (next[j - 1] as number) + 1))
    }
    row = next
  }
  return row[other.length] as number
}
