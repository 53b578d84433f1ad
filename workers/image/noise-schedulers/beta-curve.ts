// Lee et al. 2024, "Beta Sampling is All You Need": both parameters of the distribution.
const SHAPE = 0.6
// The series converges by halves, the bisection too.
const TERMS = 60
const HALVINGS = 60

/** The quantile of the symmetric beta distribution at `share`. */
export function betaQuantile(share: number): number {
  if (share > 0.5) return 1 - betaQuantile(1 - share)
  const wanted = share * 2 * integral(0.5)
  let [low, high] = [0, 0.5]
  for (let i = 0; i < HALVINGS; i++) {
    const middle = (low + high) / 2
    if (integral(middle) < wanted) low = middle
    else high = middle
  }
  return (low + high) / 2
}

/** The incomplete beta function from 0 to at most one half, by its power series. */
function integral(end: number): number {
  let sum = 0
  let term = end ** SHAPE
  for (let n = 0; n < TERMS; n++) {
    sum += term / (SHAPE + n)
    term *= (end * (n + 1 - SHAPE)) / (n + 1)
  }
  return sum
}
