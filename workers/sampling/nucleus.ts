import { exponential, type Shape } from './exponentials.ts'

const BUCKETS = 1024
const BUCKETS_PER_NAT = 32 // scores 32 nats below the maximum share the last bucket

/**
 * The lowest remaining score when the likeliest tokens are kept until their weights reach the
 * target, at least one token (Holtzman et al. 2020); scores below `least` do not matter. Instead of
 * sorting all scores, weights are first summed in buckets of equal score, and only the bucket that
 * crosses the target is sorted.
 */
export function nucleusThreshold(
  scores: Float32Array,
  { max, scale }: Shape,
  { wanted, least }: { readonly wanted: number; readonly least: number },
): number {
  const weights = new Float64Array(BUCKETS)
  for (let index = 0; index < scores.length; index += 1) {
    const score = scores[index] as number
    if (!(score >= least)) continue
    const distance = (max - score) * scale
    const bucket = bucketOf(distance)
    weights[bucket] = (weights[bucket] as number) + exponential(-distance)
  }
  let above = 0
  let crossing = 0
  while (crossing < BUCKETS - 1 && above + (weights[crossing] as number) < wanted) {
    above += weights[crossing] as number
    crossing += 1
  }
  const members: number[] = []
  for (let index = 0; index < scores.length; index += 1) {
    const score = scores[index] as number
    if (score >= least && bucketOf((max - score) * scale) === crossing) members.push(score)
  }
  members.sort((a, b) => b - a)
  for (const score of members) {
    above += exponential((score - max) * scale)
    if (above >= wanted) return score
  }
  return members.at(-1) ?? max
}

function bucketOf(distance: number): number {
  return Math.min(BUCKETS - 1, Math.floor(distance * BUCKETS_PER_NAT))
}
