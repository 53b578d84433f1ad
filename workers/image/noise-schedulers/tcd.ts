import { cumulativeAlphas } from './betas.ts'
import { explain, mix } from './ddim.ts'
import { distilledTimesteps } from './lcm.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

// The share of noise that is fresh in each step, γ of the paper.
const FRESHNESS = 0.3

/**
 * Trajectory consistency distillation, Zheng et al. 2024, algorithm 4: each step goes below the
 * next timestep along the trajectory and adds fresh noise up to it.
 */
export function createTcd(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const alphas = cumulativeAlphas(config)
  const timesteps = distilledTimesteps(config, steps)
  const alphaOf = (timestep: number) => alphas[timestep] as number
  return {
    timesteps,
    initNoiseSigma: 1,
    scaleInput: (latents) => latents,
    step(prediction, latents, index, noise) {
      const alpha = alphaOf(timesteps[index] as number)
      const next = timesteps[index + 1] ?? 0
      const below = alphaOf(Math.floor(Math.fround((1 - FRESHNESS) * next)))
      const moved = latents.map((sample, i) => {
        const [clean, implied] = explain(config, prediction[i] as number, sample, alpha)
        return Math.sqrt(below) * clean + Math.sqrt(1 - below) * implied
      })
      const isLast = index === timesteps.length - 1
      return isLast ? moved : mix(moved, noise(), alphaOf(next) / below)
    },
    addNoise: (clean, noise, index) => mix(clean, noise, alphaOf(timesteps[index] as number)),
  }
}
