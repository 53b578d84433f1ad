import { explain } from './ddim.ts'
import { solverLevels } from './levels.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

// With fewer steps the last ones are of first order, for stability.
const MANY_STEPS = 15

/**
 * DPM-Solver++ (2M), Lu et al. 2022, algorithm 2: predictions of the clean latents, extrapolated
 * over λ from the last two; the first step and the last one are of the first order. The stochastic
 * one (SDE) goes twice as far and adds fresh noise.
 */
export function createDpmSolver(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const { timesteps, levels } = solverLevels(config, steps)
  let before: { clean: Float32Array; lambda: number } | undefined
  return {
    timesteps,
    ...unscaledLevels(levels),
    step(prediction, latents, index, noise) {
      const [from, to] = [levelAt(levels, index), levelAt(levels, index + 1)]
      const clean = cleanOf(config, prediction, latents, from.alpha)
      const last = before
      before = { clean, lambda: from.lambda }
      const change = from.lambda - to.lambda
      const isStochastic = config.algorithmType === 'sde-dpmsolver++'
      const factor = to.alpha * Math.expm1(isStochastic ? 2 * change : change)
      const kept = (to.sigma / from.sigma) * (isStochastic ? Math.exp(change) : 1)
      const fresh = isStochastic ? noise() : undefined
      const freshShare = to.sigma * Math.sqrt(-Math.expm1(2 * change))
      const isFirstOrder = last === undefined || isLowered(config, index, steps)
      const ratio = isFirstOrder ? 0 : change / (last.lambda - from.lambda) / 2
      return latents.map((sample, i) => {
        const now = clean[i] as number
        const slope = isFirstOrder ? 0 : ratio * (now - (last.clean[i] as number))
        return kept * sample - factor * (now + slope) + freshShare * (fresh?.[i] ?? 0)
      })
    },
  }
}

type Levels = ReturnType<typeof solverLevels>['levels']

/** Shared by the solvers over λ: latents that need no scaling, noise by level. */
export function unscaledLevels(
  levels: Levels,
): Pick<NoiseScheduler, 'initNoiseSigma' | 'scaleInput' | 'addNoise'> {
  return {
    initNoiseSigma: 1,
    scaleInput: (latents) => latents,
    addNoise(clean, noise, index) {
      const { alpha, sigma } = levelAt(levels, index)
      return clean.map((value, i) => alpha * value + sigma * (noise[i] as number))
    },
  }
}

/** The level before step `index`. */
export function levelAt(levels: Levels, index: number): Levels[number] {
  return levels[index] as Levels[number]
}

/** The clean latents that a prediction implies, where the share of the image is `alpha` squared. */
export function cleanOf(
  config: NoiseSchedulerConfig,
  prediction: Float32Array,
  latents: Float32Array,
  alpha: number,
): Float32Array {
  return latents.map((sample, i) => explain(config, prediction[i] as number, sample, alpha ** 2)[0])
}

function isLowered(
  { solverOrder, eulerAtFinal, lowerOrderFinal, finalSigmasType }: NoiseSchedulerConfig,
  index: number,
  steps: number,
): boolean {
  if (solverOrder === 1) return true
  if (index < steps - 1) return false
  return eulerAtFinal || finalSigmasType === 'zero' || (lowerOrderFinal && steps < MANY_STEPS)
}
