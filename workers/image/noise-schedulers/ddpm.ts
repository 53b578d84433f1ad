import { alphasByTimestep, spacedTimesteps } from './betas.ts'
import { explain, mix } from './ddim.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

const VARIANCE_MIN = 1e-20

/** Denoising diffusion probabilistic models, Ho et al. 2020, equations 6 and 7. */
export function createDdpm(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const alphaAt = alphasByTimestep(config)
  const timesteps = spacedTimesteps(config, steps)
  return {
    timesteps,
    initNoiseSigma: 1,
    scaleInput: (latents) => latents,
    step(prediction, latents, index, noise) {
      const timestep = timesteps[index] as number
      const alpha = alphaAt(timestep)
      const previous = alphaAt(timesteps[index + 1] ?? -1)
      const beta = 1 - alpha / previous
      const cleanShare = (Math.sqrt(previous) * beta) / (1 - alpha)
      const sampleShare = (Math.sqrt(alpha / previous) * (1 - previous)) / (1 - alpha)
      const small = Math.max(VARIANCE_MIN, ((1 - previous) / (1 - alpha)) * beta)
      const deviation = Math.sqrt(config.varianceType === 'fixed_large' ? beta : small)
      const fresh = timestep > 0 ? noise() : undefined
      return latents.map((sample, i) => {
        const [clean] = explain(config, prediction[i] as number, sample, alpha)
        return cleanShare * clean + sampleShare * sample + deviation * (fresh?.[i] ?? 0)
      })
    },
    addNoise: (clean, noise, index) => mix(clean, noise, alphaAt(timesteps[index] as number)),
  }
}
