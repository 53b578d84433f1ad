/** `scheduler_config.json` of a Stable Diffusion folder, as far as a noise scheduler reads it. */
export interface NoiseSchedulerConfig {
  readonly numTrainTimesteps: number
  readonly betaStart: number
  readonly betaEnd: number
  readonly betaSchedule: 'linear' | 'scaled_linear' | 'squaredcos_cap_v2'
  readonly predictionType: 'epsilon' | 'v_prediction' | 'sample'
  readonly timestepSpacing: 'leading' | 'trailing' | 'linspace'
  readonly stepsOffset: number
  readonly setAlphaToOne: boolean
  readonly rescaleBetasZeroSnr: boolean
  readonly clipSample: boolean
  readonly clipSampleRange: number
  /** DPM-Solver: noise levels after Karras et al. 2022 instead of evenly spaced timesteps. */
  readonly useKarrasSigmas: boolean
  /** DPM-Solver: predictions that a step extrapolates from, 1 or 2. */
  readonly solverOrder: number
  readonly lowerOrderFinal: boolean
  readonly eulerAtFinal: boolean
  /** DPM-Solver: where the last step ends. */
  readonly finalSigmasType: 'zero' | 'sigma_min'
  /** LCM: what the model's own distillation used. */
  readonly originalInferenceSteps: number
}

/**
 * One way through the noise: which timesteps to visit and how to move between them. Some remember earlier
 * predictions: one for each picture, its steps taken in order.
 */
export interface NoiseScheduler {
  /** Timesteps in the order of the loop, as the U-Net takes them; some visit one of them twice. */
  readonly timesteps: readonly number[]
  /** Standard deviation of the first latents. */
  readonly initNoiseSigma: number
  /** The latents as the U-Net wants them at step `index`. */
  scaleInput(latents: Float32Array, index: number): Float32Array
  /** The latents after step `index`, given what the U-Net said. `noise` draws fresh standard normals. */
  step(
    prediction: Float32Array,
    latents: Float32Array,
    index: number,
    noise: () => Float32Array,
  ): Float32Array
  /** Clean latents brought to the noise level before step `index`. */
  addNoise(clean: Float32Array, noise: Float32Array, index: number): Float32Array
}
