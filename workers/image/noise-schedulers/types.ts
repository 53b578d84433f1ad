/** The fields of `scheduler_config.json` that a noise scheduler reads. */
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
  /** DPM-Solver: the number of predictions that a step extrapolates from, 1 or 2. */
  readonly solverOrder: number
  readonly lowerOrderFinal: boolean
  readonly eulerAtFinal: boolean
  /** DPM-Solver: the level at which the last step ends. */
  readonly finalSigmasType: 'zero' | 'sigma_min'
  /** LCM: the number of steps of the model's distillation. */
  readonly originalInferenceSteps: number
}

/**
 * A trajectory from noise to image: the timesteps to visit and how to move between them. Some
 * schedulers keep earlier predictions: use one instance per image and take its steps in order.
 */
export interface NoiseScheduler {
  /**
   * Timesteps in the order of the loop, as inputs of the U-Net; some schedulers visit one twice.
   */
  readonly timesteps: readonly number[]
  /** Standard deviation of the initial latents. */
  readonly initNoiseSigma: number
  /** The latents scaled for the U-Net at step `index`. */
  scaleInput(latents: Float32Array, index: number): Float32Array
  /**
   * The latents after step `index`, given the U-Net's prediction. `noise` draws fresh standard
   * normals.
   */
  step(
    prediction: Float32Array,
    latents: Float32Array,
    index: number,
    noise: () => Float32Array,
  ): Float32Array
  /** Clean latents brought to the noise level before step `index`. */
  addNoise(clean: Float32Array, noise: Float32Array, index: number): Float32Array
}
