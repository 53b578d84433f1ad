import type { NoiseScheduler } from './noise-schedulers/types.ts'

/** One run of the U-Net: its input and its output. */
interface Run {
  readonly index: number
  /** Before the step. */
  readonly latents: Float32Array
  readonly prediction: Float32Array
}

const ONE = Float32Array.of(1)
const ZERO = Float32Array.of(0)

/**
 * The clean latents that a prediction implies (Ho et al. 2020, eq. 15; for v, Salimans and Ho 2022,
 * appendix D): x = α · clean + σ · ε with α² + σ² = 1, at the noise level of the run.
 */
export function estimateClean(
  scheduler: Pick<NoiseScheduler, 'scaleInput' | 'addNoise'>,
  predictionType: unknown,
  { index, latents, prediction }: Run,
): Float32Array {
  const { alpha, sigma } = levelOf(scheduler, index)
  const scaled = scheduler.scaleInput(latents, index)
  return scaled.map((x, i) => {
    const predicted = prediction[i] as number
    switch (predictionType) {
      case 'sample':
        return predicted
      case 'v_prediction':
        return alpha * x - sigma * predicted
      default:
        return (x - sigma * predicted) / alpha
    }
  })
}

/** Schedulers whose latents grow with the noise scale them for the U-Net by α. */
function levelOf(
  { scaleInput, addNoise }: Pick<NoiseScheduler, 'scaleInput' | 'addNoise'>,
  index: number,
): { readonly alpha: number; readonly sigma: number } {
  const scale = scaleInput(ONE, index)[0] as number
  if (scale < 1) return { alpha: scale, sigma: Math.sqrt(1 - scale ** 2) }
  return {
    alpha: addNoise(ONE, ZERO, index)[0] as number,
    sigma: addNoise(ZERO, ONE, index)[0] as number,
  }
}
