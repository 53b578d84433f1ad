import { noiseLevels, spacedTimesteps } from './betas.ts'
import { sigmaCurve, timestepOf } from './levels.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

/**
 * Euler's method over the noise levels of Karras et al. 2022 (algorithm 2 with S_churn = 0):
 * x ← x + (σ_{i+1} − σ_i) · (x − x₀) / σ_i, where σ = √((1 − ᾱ) / ᾱ).
 */
export function createEuler(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  return createSingleStep(config, steps, () => 0)
}

/**
 * The same with ancestral sampling (Karras et al. 2022, after Ho et al. 2020): each step goes below
 * the next level and then adds fresh noise up to it.
 */
export function createEulerAncestral(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  return createSingleStep(config, steps, ancestralShare)
}

/** The fresh noise after an ancestral step from one level to the next. */
export function ancestralShare(from: number, to: number): number {
  return Math.sqrt((to ** 2 * (from ** 2 - to ** 2)) / from ** 2)
}

/** Levels of the schedulers whose latents grow with the noise: x = clean + σ · noise. */
interface SigmaPlan {
  readonly timesteps: readonly number[]
  /** One more than the timesteps: the last step ends there. */
  readonly sigmas: readonly number[]
  readonly initNoiseSigma: number
  /** The trained levels, by timestep. */
  readonly trained: Float64Array
}

/** The levels of a configuration for a number of steps. */
export function planSigmas(config: NoiseSchedulerConfig, steps: number): SigmaPlan {
  const trained = noiseLevels(config)
  // Unlike DDIM's, these may be between two trained timesteps.
  const spaced = spacedTimesteps(config, steps, Math.fround)
  const between = spaced.map((t) => interpolate(trained, t))
  const isTrained = config.sigmaCurve === 'trained'
  const ends = { high: between[0] as number, low: between.at(-1) as number }
  const sigmas = isTrained ? between : sigmaCurve(config.sigmaCurve, ends, steps)
  const largest = Math.max(...sigmas)
  return {
    timesteps: isTrained ? spaced : sigmas.map((sigma) => timestepOf(sigma, trained)),
    sigmas: [...sigmas, config.finalSigmasType === 'zero' ? 0 : (trained[0] as number)],
    initNoiseSigma: config.timestepSpacing === 'leading' ? Math.sqrt(largest ** 2 + 1) : largest,
    trained,
  }
}

/** Scales latents for the U-Net, by the level of each of its runs. */
export function scaleBy(sigmas: readonly number[]): NoiseScheduler['scaleInput'] {
  return (latents, index) => {
    const scale = 1 / Math.sqrt((sigmas[index] as number) ** 2 + 1)
    return latents.map((value) => value * scale)
  }
}

/** Adds noise of the level before each run of the U-Net. */
export function noiseBy(sigmas: readonly number[]): NoiseScheduler['addNoise'] {
  return (clean, noise, index) =>
    clean.map((value, i) => value + (sigmas[index] as number) * (noise[i] as number))
}

/** The direction away from the clean latents, (x − x₀) / σ. */
export function slopeOf(
  config: NoiseSchedulerConfig,
  prediction: Float32Array,
  latents: Float32Array,
  sigma: number,
): Float32Array {
  const { clipSample, clipSampleRange: range } = config
  return latents.map((sample, i) => {
    const clean = cleanOf(config, prediction[i] as number, sample, sigma)
    return (sample - (clipSample ? Math.max(-range, Math.min(range, clean)) : clean)) / sigma
  })
}

/** `freshShare` is the noise added after a step from one level to the next. */
function createSingleStep(
  config: NoiseSchedulerConfig,
  steps: number,
  freshShare: (from: number, to: number) => number,
): NoiseScheduler {
  const { timesteps, sigmas, initNoiseSigma } = planSigmas(config, steps)
  return {
    timesteps,
    initNoiseSigma,
    scaleInput: scaleBy(sigmas),
    addNoise: noiseBy(sigmas),
    step(prediction, latents, index, noise) {
      const [from, to] = [sigmas[index] as number, sigmas[index + 1] as number]
      const share = freshShare(from, to)
      const change = Math.sqrt(to ** 2 - share ** 2) - from
      const fresh = share === 0 ? undefined : noise()
      const slope = slopeOf(config, prediction, latents, from)
      return latents.map(
        (sample, i) => sample + (slope[i] as number) * change + share * (fresh?.[i] ?? 0),
      )
    },
  }
}

function cleanOf(
  config: NoiseSchedulerConfig,
  prediction: number,
  sample: number,
  sigma: number,
): number {
  switch (config.predictionType) {
    case 'epsilon':
      return sample - sigma * prediction
    case 'sample':
      return prediction
    case 'v_prediction':
      return prediction * (-sigma / Math.sqrt(sigma ** 2 + 1)) + sample / (sigma ** 2 + 1)
  }
}

function interpolate(values: Float64Array, at: number): number {
  const low = Math.floor(at)
  const high = Math.min(low + 1, values.length - 1)
  return (values[low] as number) + ((values[high] as number) - (values[low] as number)) * (at - low)
}
