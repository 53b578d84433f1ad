import { alphasByTimestep, spacedTimesteps } from './betas.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

/**
 * Denoising diffusion implicit models, Song et al. 2020, with η = 0.
 *
 * `alpha` is ᾱ_t, `clean` the predicted x₀, `noise` the predicted ε; step = eq. 12 without its
 * random part.
 */
export function createDdim(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const alphaAt = alphasByTimestep(config)
  const timesteps = spacedTimesteps(config, steps)
  const stride = Math.floor(config.numTrainTimesteps / steps)
  return {
    timesteps,
    initNoiseSigma: 1,
    scaleInput: (latents) => latents,
    step(prediction, latents, index) {
      const timestep = timesteps[index] as number
      const alpha = alphaAt(timestep)
      const previousAlpha = alphaAt(timestep - stride)
      const next = new Float32Array(latents.length)
      for (let i = 0; i < next.length; i++) {
        const sample = latents[i] as number
        const [clean, noise] = explain(config, prediction[i] as number, sample, alpha)
        next[i] = Math.sqrt(previousAlpha) * clean + Math.sqrt(1 - previousAlpha) * noise
      }
      return next
    },
    addNoise: (clean, noise, index) => mix(clean, noise, alphaAt(timesteps[index] as number)),
  }
}

/** √ᾱ · clean + √(1 − ᾱ) · noise. */
export function mix(clean: Float32Array, noise: Float32Array, alpha: number): Float32Array {
  const signal = Math.sqrt(alpha)
  const sigma = Math.sqrt(1 - alpha)
  return clean.map((value, i) => signal * value + sigma * (noise[i] as number))
}

/** The clean value x₀ and the noise ε that one prediction implies. */
export function explain(
  config: NoiseSchedulerConfig,
  prediction: number,
  sample: number,
  alpha: number,
): [clean: number, noise: number] {
  const signal = Math.sqrt(alpha)
  const sigma = Math.sqrt(1 - alpha)
  let clean: number
  let noise: number
  switch (config.predictionType) {
    case 'epsilon':
      noise = prediction
      clean = (sample - sigma * noise) / signal
      break
    case 'sample':
      clean = prediction
      noise = (sample - signal * clean) / sigma
      break
    case 'v_prediction':
      clean = signal * sample - sigma * prediction
      noise = signal * prediction + sigma * sample
      break
  }
  if (config.clipSample) {
    clean = Math.max(-config.clipSampleRange, Math.min(config.clipSampleRange, clean))
  }
  return [clean, noise]
}
