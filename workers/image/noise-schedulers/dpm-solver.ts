import { noiseLevels } from './betas.ts'
import { explain } from './ddim.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

// With fewer steps the last ones are of first order, for stability.
const MANY_STEPS = 15
const KARRAS_RHO = 7

/** One noise level: x = α · clean + σ · noise, and λ = ln(α / σ). */
interface Level {
  readonly alpha: number
  readonly sigma: number
  readonly lambda: number
}

/**
 * DPM-Solver++ (2M), Lu et al. 2022, algorithm 2: predictions of the clean latents, extrapolated
 * over λ from the last two; the first step and the last one are of the first order.
 */
export function createDpmSolver(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const sigmas = Array.from(noiseLevels(config))
  const { timesteps, levels } = config.useKarrasSigmas
    ? karrasLevels(sigmas, steps)
    : spacedLevels(config, sigmas, steps)
  levels.push(levelOf(config.finalSigmasType === 'zero' ? 0 : (sigmas[0] as number)))
  const levelAt = (index: number) => levels[index] as Level
  let before: { clean: Float32Array; level: Level } | undefined

  return {
    timesteps,
    initNoiseSigma: 1,
    scaleInput: (latents) => latents,
    step(prediction, latents, index) {
      const [from, to] = [levelAt(index), levelAt(index + 1)]
      const clean = latents.map(
        (sample, i) => explain(config, prediction[i] as number, sample, from.alpha ** 2)[0],
      )
      const last = before
      before = { clean, level: from }
      const factor = to.alpha * Math.expm1(from.lambda - to.lambda)
      const isFirstOrder = last === undefined || isLowered(config, index, steps)
      const ratio = isFirstOrder
        ? 0
        : (to.lambda - from.lambda) / (from.lambda - last.level.lambda) / 2
      return latents.map((sample, i) => {
        const now = clean[i] as number
        const slope = isFirstOrder ? 0 : ratio * (now - (last.clean[i] as number))
        return (to.sigma / from.sigma) * sample - factor * (now + slope)
      })
    },
    addNoise(clean, noise, index) {
      const { alpha, sigma } = levelAt(index)
      return clean.map((value, i) => alpha * value + sigma * (noise[i] as number))
    },
  }
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

function spacedLevels(config: NoiseSchedulerConfig, sigmas: readonly number[], steps: number) {
  const total = config.numTrainTimesteps
  const places = Array.from({ length: steps }, (_, i) => i)
  const spaced = {
    // One more than the number of steps: the last step ends below the last level.
    linspace: () => places.map((i) => roundEven(((steps - i) * (total - 1)) / steps)),
    leading: () =>
      places.map((i) => (steps - i) * Math.floor(total / (steps + 1)) + config.stepsOffset),
    trailing: () => places.map((i) => roundEven(total - (i * total) / steps) - 1),
  }
  const timesteps = spaced[config.timestepSpacing]()
  return { timesteps, levels: timesteps.map((t) => levelOf(sigmas[t] as number)) }
}

/** Levels after Karras et al. 2022, equation 5, and the trained timesteps nearest to them. */
function karrasLevels(sigmas: readonly number[], steps: number) {
  const root = (sigma: number) => sigma ** (1 / KARRAS_RHO)
  const [low, high] = [root(sigmas[0] as number), root(sigmas.at(-1) as number)]
  const chosen = Array.from({ length: steps }, (_, i) => {
    const at = steps === 1 ? 0 : i / (steps - 1)
    return (high + at * (low - high)) ** KARRAS_RHO
  })
  return {
    timesteps: chosen.map((sigma) => roundEven(timestepOf(sigma, sigmas))),
    levels: chosen.map(levelOf),
  }
}

/** The position of a noise level between the trained ones, by its logarithm. */
function timestepOf(sigma: number, sigmas: readonly number[]): number {
  const above = sigmas.findIndex((trained) => trained > sigma)
  const high = above < 0 ? sigmas.length - 1 : Math.max(1, above)
  const [below, over] = [sigmas[high - 1] as number, sigmas[high] as number]
  const share = Math.log(sigma / below) / Math.log(over / below)
  return high - 1 + Math.max(0, Math.min(1, share))
}

function levelOf(sigma: number): Level {
  const alpha = 1 / Math.sqrt(sigma ** 2 + 1)
  return { alpha, sigma: sigma * alpha, lambda: -Math.log(sigma) }
}

/** Rounds like NumPy: halves to the even neighbour. */
function roundEven(value: number): number {
  const rounded = Math.round(value)
  return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded
}
