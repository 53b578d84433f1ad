import { noiseBy, planSigmas, scaleBy, slopeOf } from './euler.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

const ORDER = 4

/** One visited level and the direction of the latents there. */
interface Visit {
  readonly sigma: number
  readonly slope: Float32Array
}

/** Linear multistep over σ: a polynomial through the last four directions, integrated. */
export function createLms(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const { timesteps, sigmas, initNoiseSigma } = planSigmas(config, steps)
  /** Newest first. */
  let visits: readonly Visit[] = []
  return {
    timesteps,
    initNoiseSigma,
    scaleInput: scaleBy(sigmas),
    addNoise: noiseBy(sigmas),
    step(prediction, latents, index) {
      const [sigma, next] = [sigmas[index] as number, sigmas[index + 1] as number]
      const slope = slopeOf(config, prediction, latents, sigma)
      visits = [{ sigma, slope }, ...visits].slice(0, ORDER)
      const used = visits
      const weights = used.map((_, at) => weightOf(used, at, next))
      return latents.map((sample, i) =>
        used.reduce(
          (sum, visit, at) => sum + (weights[at] as number) * (visit.slope[i] as number),
          sample,
        ),
      )
    },
  }
}

/** The Lagrange polynomial of one visit over the step; Gauss with two points is exact here. */
function weightOf(visits: readonly Visit[], at: number, next: number): number {
  const own = (visits[at] as Visit).sigma
  const start = (visits[0] as Visit).sigma
  const [middle, half] = [(start + next) / 2, (next - start) / 2]
  const polynomial = (sigma: number) =>
    visits.reduce(
      (product, other, i) =>
        i === at ? product : (product * (sigma - other.sigma)) / (own - other.sigma),
      1,
    )
  const offset = half / Math.sqrt(3)
  return half * (polynomial(middle - offset) + polynomial(middle + offset))
}
