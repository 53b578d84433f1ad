import { cleanOf, levelAt, unscaledLevels } from './dpm-solver.ts'
import { type Level, solverLevels } from './levels.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

// With fewer steps the last ones are of lower order, for stability.
const MANY_STEPS = 15

/** The noise predicted at one level; `rho` is σ / α. */
interface Visit {
  readonly rho: number
  readonly noise: Float32Array
}

/**
 * DEIS, Zhang and Chen 2023, in log-ρ: a polynomial in ln ρ through the last predictions of the
 * noise, integrated over ρ.
 */
export function createDeis(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const { timesteps, levels } = solverLevels(config, steps)
  const isLowered = config.lowerOrderFinal && steps < MANY_STEPS
  /** Newest first. */
  let visits: readonly Visit[] = []
  return {
    timesteps,
    ...unscaledLevels(levels),
    step(prediction, latents, index) {
      const [from, to] = [levelAt(levels, index), levelAt(levels, index + 1)]
      const clean = cleanOf(config, prediction, latents, from.alpha)
      const noise = latents.map((x, i) => (x - from.alpha * (clean[i] as number)) / from.sigma)
      visits = [{ rho: rhoOf(from), noise }, ...visits].slice(0, config.solverOrder)
      const used = visits.slice(0, isLowered ? steps - index : visits.length)
      const weights = used.map((_, at) => integral(used, at, rhoOf(to)))
      return latents.map((sample, i) => {
        const change = used.reduce(
          (sum, visit, at) => sum + (weights[at] as number) * (visit.noise[i] as number),
          0,
        )
        return to.alpha * (sample / from.alpha + change)
      })
    },
  }
}

function rhoOf({ alpha, sigma }: Level): number {
  return sigma / alpha
}

/** The Lagrange polynomial of one visit in ln ρ, integrated over ρ from the newest visit on. */
function integral(visits: readonly Visit[], at: number, end: number): number {
  const [newest] = visits as [Visit]
  const own = Math.log((visits[at] as Visit).rho)
  const others = visits.filter((_, i) => i !== at).map(({ rho }) => Math.log(rho))
  const divisor = others.reduce((product, other) => product * (own - other), 1)
  const antiderivative = (rho: number): number => {
    const log = Math.log(rho)
    const [first = 0, second = 0] = others
    if (others.length === 0) return rho
    if (others.length === 1) return rho * (log - 1 - first)
    return rho * (log ** 2 - 2 * log + 2 - (first + second) * (log - 1) + first * second)
  }
  return (antiderivative(end) - antiderivative(newest.rho)) / divisor
}
