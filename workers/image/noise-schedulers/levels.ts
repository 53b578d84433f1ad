import { betaQuantile } from './beta-curve.ts'
import { noiseLevels } from './betas.ts'
import type { NoiseSchedulerConfig } from './types.ts'

const KARRAS_RHO = 7

/** One noise level: x = α · clean + σ · noise, and λ = ln(α / σ). */
export interface Level {
  readonly alpha: number
  readonly sigma: number
  readonly lambda: number
}

/** The levels of the solvers over λ, one more than the timesteps: the last step ends there. */
export function solverLevels(
  config: NoiseSchedulerConfig,
  steps: number,
): { readonly timesteps: readonly number[]; readonly levels: readonly Level[] } {
  const trained = Array.from(noiseLevels(config))
  const { timesteps, sigmas } = chooseSigmas(config, trained, steps)
  const last = config.finalSigmasType === 'zero' ? 0 : (trained[0] as number)
  return { timesteps, levels: [...sigmas, last].map(levelOf) }
}

/** Levels along the curve of the configuration, `count` of them from `high` to `low`. */
export function sigmaCurve(
  curve: 'karras' | 'exponential' | 'beta',
  { high, low }: { readonly high: number; readonly low: number },
  count: number,
): number[] {
  const along = (from: number, to: number, back: (value: number) => number) =>
    Array.from({ length: count }, (_, i) =>
      back(from + (count === 1 ? 0 : i / (count - 1)) * (to - from)),
    )
  if (curve === 'beta') {
    return along(1, 0, (share) => low + betaQuantile(share) * (high - low))
  }
  if (curve === 'exponential') return along(Math.log(high), Math.log(low), Math.exp)
  // Karras et al. 2022, equation 5.
  const root = (sigma: number) => sigma ** (1 / KARRAS_RHO)
  return along(root(high), root(low), (value) => value ** KARRAS_RHO)
}

/** The position of a noise level between the trained ones, by its logarithm. */
export function timestepOf(sigma: number, trained: ArrayLike<number>): number {
  let high = 1
  while (high < trained.length - 1 && (trained[high] as number) <= sigma) high += 1
  const [below, over] = [trained[high - 1] as number, trained[high] as number]
  const share = Math.log(sigma / below) / Math.log(over / below)
  return high - 1 + Math.max(0, Math.min(1, share))
}

function chooseSigmas(config: NoiseSchedulerConfig, trained: readonly number[], steps: number) {
  if (config.sigmaCurve === 'trained') {
    const timesteps = spacedSteps(config, steps)
    return { timesteps, sigmas: timesteps.map((t) => trained[t] as number) }
  }
  const ends = { high: trained.at(-1) as number, low: trained[0] as number }
  const sigmas = sigmaCurve(config.sigmaCurve, ends, steps)
  const settle = config.sigmaCurve === 'karras' ? roundEven : truncate
  return { timesteps: sigmas.map((sigma) => settle(timestepOf(sigma, trained))), sigmas }
}

function spacedSteps(config: NoiseSchedulerConfig, steps: number): number[] {
  const total = config.numTrainTimesteps
  const places = Array.from({ length: steps }, (_, i) => i)
  switch (config.timestepSpacing) {
    case 'linspace':
      // One more than the number of steps: the last step ends below the last level.
      return places.map((i) => roundEven(((steps - i) * (total - 1)) / steps))
    case 'leading':
      return places.map((i) => (steps - i) * Math.floor(total / (steps + 1)) + config.stepsOffset)
    case 'trailing':
      return places.map((i) => roundEven(total - (i * total) / steps) - 1)
  }
}

function levelOf(sigma: number): Level {
  const alpha = 1 / Math.sqrt(sigma ** 2 + 1)
  return { alpha, sigma: sigma * alpha, lambda: -Math.log(sigma) }
}

/** Cuts like diffusers, whose 32-bit logarithms put the highest level just below its timestep. */
function truncate(value: number): number {
  return Math.max(0, Math.trunc(value - 1e-4))
}

/** Rounds like NumPy: halves to the even neighbour. */
function roundEven(value: number): number {
  const rounded = Math.round(value)
  return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded
}
