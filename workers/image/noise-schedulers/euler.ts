import { noiseLevels, spacedTimesteps } from './betas.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

/**
 * Euler's method over the noise levels of Karras et al. 2022 (algorithm 2 with S_churn = 0):
 * x ← x + (σ_{i+1} − σ_i) · (x − x₀) / σ_i, where σ = √((1 − ᾱ) / ᾱ).
 */
export function createEuler(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  return { ...planLevels(config, steps), step: stepOf(config, steps, () => 0) }
}

/**
 * The same with ancestral sampling (Karras et al. 2022, after Ho et al. 2020): each step goes below
 * the next level and then adds fresh noise up to it.
 */
export function createEulerAncestral(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const freshShare = (from: number, to: number) =>
    Math.sqrt((to ** 2 * (from ** 2 - to ** 2)) / from ** 2)
  return { ...planLevels(config, steps), step: stepOf(config, steps, freshShare) }
}

function sigmasOf(config: NoiseSchedulerConfig, timesteps: readonly number[]): number[] {
  const allSigmas = noiseLevels(config)
  return [...timesteps.map((t) => interpolate(allSigmas, t)), 0]
}

function planLevels(config: NoiseSchedulerConfig, steps: number): Omit<NoiseScheduler, 'step'> {
  // Unlike DDIM's, these may lie between two trained timesteps.
  const timesteps = spacedTimesteps(config, steps, Math.fround)
  const sigmas = sigmasOf(config, timesteps)
  const largest = Math.max(...sigmas)
  const sigmaAt = (index: number) => sigmas[index] as number
  return {
    timesteps,
    initNoiseSigma: config.timestepSpacing === 'leading' ? Math.sqrt(largest ** 2 + 1) : largest,
    scaleInput(latents, index) {
      const scale = 1 / Math.sqrt(sigmaAt(index) ** 2 + 1)
      return latents.map((value) => value * scale)
    },
    addNoise: (clean, noise, index) =>
      clean.map((value, i) => value + sigmaAt(index) * (noise[i] as number)),
  }
}

/** `freshShare` is the noise added after a step from one level to the next. */
function stepOf(
  config: NoiseSchedulerConfig,
  steps: number,
  freshShare: (from: number, to: number) => number,
): NoiseScheduler['step'] {
  const sigmas = sigmasOf(config, spacedTimesteps(config, steps, Math.fround))
  return (prediction, latents, index, noise) => {
    const [from, to] = [sigmas[index] as number, sigmas[index + 1] as number]
    const share = freshShare(from, to)
    const change = Math.sqrt(to ** 2 - share ** 2) - from
    const fresh = share === 0 ? undefined : noise()
    return latents.map((sample, i) => {
      const clean = cleanOf(config, prediction[i] as number, sample, from)
      return sample + ((sample - clean) / from) * change + share * (fresh?.[i] ?? 0)
    })
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
