const BUCKETS = 1024
const BUCKETS_PER_NAT = 32 // so that 32 nats below the maximum share the last bucket

/**
 * Keeps the likeliest tokens whose probabilities together reach `topP`, at least one (Holtzman et
 * al. 2020). Sorting a whole vocabulary is not needed: the mass is first gathered in buckets of
 * equal score, and only the bucket in which the sum crosses `topP` is sorted.
 */
export function keepNucleus(scores: Float32Array, topP: number): void {
  const max = scores.reduce((a, b) => (b > a ? b : a), Number.NEGATIVE_INFINITY)
  const mass = new Float64Array(BUCKETS)
  let total = 0
  for (let index = 0; index < scores.length; index += 1) {
    const distance = max - (scores[index] as number)
    const probability = Math.exp(-distance)
    if (!(probability > 0)) continue
    const bucket = bucketOf(distance)
    mass[bucket] = (mass[bucket] as number) + probability
    total += probability
  }
  const wanted = topP * total
  let above = 0
  let crossing = 0
  while (crossing < BUCKETS - 1 && above + (mass[crossing] as number) < wanted) {
    above += mass[crossing] as number
    crossing += 1
  }
  const threshold = lastKeptScore(scores, max, crossing, wanted - above)
  for (let index = 0; index < scores.length; index += 1) {
    if ((scores[index] as number) < threshold) scores[index] = Number.NEGATIVE_INFINITY
  }
}

/** The lowest score to keep: tokens of the crossing bucket join until their mass is enough. */
function lastKeptScore(
  scores: Float32Array,
  max: number,
  crossing: number,
  missingMass: number,
): number {
  const members = scores
    .filter((score) => score > Number.NEGATIVE_INFINITY && bucketOf(max - score) === crossing)
    .sort()
    .reverse()
  let gathered = 0
  for (const score of members) {
    gathered += Math.exp(score - max)
    if (gathered >= missingMass) return score
  }
  return members.at(-1) ?? max
}

function bucketOf(distance: number): number {
  return Math.min(BUCKETS - 1, Math.floor(distance * BUCKETS_PER_NAT))
}
