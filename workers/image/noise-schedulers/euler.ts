import { cumulativeAlphas, spacedTimesteps } from './betas.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

// With zero terminal SNR σ would be infinite; this is what diffusers puts there.
const LAST_ALPHA_OF_ZERO_SNR = 2 ** -24

/**
 * Euler's method over the noise levels of Karras et al. 2022 (algorithm 2 with S_churn = 0):
 * x ← x + (σ_{i+1} − σ_i) · (x − x₀) / σ_i, where σ = √((1 − ᾱ) / ᾱ).
 */
export function createEuler(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const alphas = cumulativeAlphas(config)
  if (config.rescaleBetasZeroSnr) alphas[alphas.length - 1] = LAST_ALPHA_OF_ZERO_SNR
  const allSigmas = alphas.map((alpha) => Math.sqrt((1 - alpha) / alpha))
  // Unlike DDIM's, these may lie between two trained timesteps.
  const timesteps = spacedTimesteps(config, steps, Math.fround)
  const sigmas = [...timesteps.map((t) => interpolate(allSigmas, t)), 0]
  const largest = Math.max(...sigmas)
  const sigmaAt = (index: number) => sigmas[index] as number
  return {
    timesteps,
    initNoiseSigma: config.timestepSpacing === 'leading' ? Math.sqrt(largest ** 2 + 1) : largest,
    scaleInput(latents, index) {
      const scale = 1 / Math.sqrt(sigmaAt(index) ** 2 + 1)
      return latents.map((value) => value * scale)
    },
    step(prediction, latents, index) {
      const sigma = sigmaAt(index)
      const change = sigmaAt(index + 1) - sigma
      return latents.map((sample, i) => {
        const clean = cleanOf(config, prediction[i] as number, sample, sigma)
        return sample + ((sample - clean) / sigma) * change
      })
    },
    addNoise: (clean, noise, index) =>
      clean.map((value, i) => value + sigmaAt(index) * (noise[i] as number)),
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
