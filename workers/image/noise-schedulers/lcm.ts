import { cumulativeAlphas } from './betas.ts'
import { explain, mix } from './ddim.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

// Luo et al. 2023, appendix: σ_data and the scale of timesteps.
const SIGMA_DATA = 0.5
const TIMESTEP_SCALING = 10

/**
 * Latent consistency models, Luo et al. 2023: every step predicts the clean latents (c_skip · x +
 * c_out · x₀) and, except for the last, adds fresh noise of the next level.
 */
export function createLcm(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const alphas = cumulativeAlphas(config)
  const timesteps = distilledTimesteps(config, steps)
  const alphaAt = (index: number) => alphas[timesteps[index] as number] as number
  return {
    timesteps,
    initNoiseSigma: 1,
    scaleInput: (latents) => latents,
    step(prediction, latents, index, noise) {
      const scaled = (timesteps[index] as number) * TIMESTEP_SCALING
      const skip = SIGMA_DATA ** 2 / (scaled ** 2 + SIGMA_DATA ** 2)
      const out = scaled / Math.sqrt(scaled ** 2 + SIGMA_DATA ** 2)
      const clean = latents.map((sample, i) => {
        const [predicted] = explain(config, prediction[i] as number, sample, alphaAt(index))
        return out * predicted + skip * sample
      })
      const isLast = index === timesteps.length - 1
      return isLast ? clean : mix(clean, noise(), alphaAt(index + 1))
    },
    addNoise: (clean, noise, index) => mix(clean, noise, alphaAt(index)),
  }
}

/** Evenly chosen from the timesteps that the distillation visited, highest first. */
export function distilledTimesteps(config: NoiseSchedulerConfig, steps: number): number[] {
  const count = Math.max(config.originalInferenceSteps, steps)
  const stride = Math.floor(config.numTrainTimesteps / count)
  const visited = Array.from({ length: count }, (_, i) => (i + 1) * stride - 1).reverse()
  return Array.from({ length: steps }, (_, i) => visited[Math.floor((i * count) / steps)] as number)
}
