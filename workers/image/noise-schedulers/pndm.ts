import { alphasByTimestep, spacedTimesteps } from './betas.ts'
import { mix } from './ddim.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

// Adams-Bashforth coefficients of the last predictions, newest first, by their number.
const WEIGHTS: readonly (readonly number[])[] = [
  [1],
  [3 / 2, -1 / 2],
  [23 / 12, -16 / 12, 5 / 12],
  [55 / 24, -59 / 24, 37 / 24, -9 / 24],
]

/**
 * Pseudo linear multistep, Liu et al. 2022 (PNDM without its Runge-Kutta warm-up), as used by
 * Stable Diffusion 1: the second timestep is visited twice, to start with a mean of two
 * predictions.
 */
export function createPndm(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const alphaAt = alphasByTimestep(config)
  const spaced = spacedTimesteps(config, steps)
  const timesteps = steps === 1 ? spaced : [...spaced.slice(0, 2), ...spaced.slice(1)]
  const stride = Math.floor(config.numTrainTimesteps / steps)
  /** Newest first. */
  let predictions: readonly Float32Array[] = []
  let taken = 0
  let first = new Float32Array(0) as Float32Array

  return {
    timesteps,
    initNoiseSigma: 1,
    scaleInput: (latents) => latents,
    step(prediction, latents, index) {
      const timestep = timesteps[index] as number
      const isSecond = taken === 1
      taken += 1
      if (isSecond) {
        const [before] = predictions as [Float32Array]
        const mean = prediction.map((value, i) => (value + (before[i] as number)) / 2)
        return move(config, mean, first, [alphaAt(timestep + stride), alphaAt(timestep)])
      }
      if (taken === 1) first = latents
      predictions = [prediction, ...predictions].slice(0, WEIGHTS.length)
      const weights = WEIGHTS[predictions.length - 1] as readonly number[]
      const joined = prediction.map((_, i) =>
        weights.reduce((sum, weight, at) => sum + weight * (predictions[at]?.[i] as number), 0),
      )
      return move(config, joined, latents, [alphaAt(timestep), alphaAt(timestep - stride)])
    },
    addNoise: (clean, noise, index) => mix(clean, noise, alphaAt(timesteps[index] as number)),
  }
}

/** Equation 9 of the paper: from ᾱ_t to the ᾱ before it. */
function move(
  { predictionType }: NoiseSchedulerConfig,
  prediction: Float32Array,
  latents: Float32Array,
  [alpha, previous]: readonly [number, number],
): Float32Array {
  const scale = Math.sqrt(previous / alpha)
  const divisor = alpha * Math.sqrt(1 - previous) + Math.sqrt(alpha * (1 - alpha) * previous)
  return latents.map((sample, i) => {
    const said = prediction[i] as number
    const noise =
      predictionType === 'v_prediction'
        ? Math.sqrt(alpha) * said + Math.sqrt(1 - alpha) * sample
        : said
    return scale * sample - ((previous - alpha) * noise) / divisor
  })
}
