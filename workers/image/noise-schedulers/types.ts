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
  /** Noise levels of evenly spaced timesteps (`trained`), or along a curve between their ends. */
  readonly sigmaCurve: 'trained' | 'karras' | 'exponential' | 'beta'
  /** KDPM2: curves visit the nearest trained timesteps at the start of a step. */
  readonly roundsTimesteps: boolean
  /** DPM-Solver: the stochastic one adds fresh noise in each step. */
  readonly algorithmType: 'dpmsolver++' | 'sde-dpmsolver++'
  /** UniPC: the function B of the step size. */
  readonly solverType: 'bh1' | 'bh2'
  /** UniPC: steps that are not corrected. */
  readonly disableCorrector: readonly unknown[]
  /** DDPM: the variance of the fresh noise. */
  readonly varianceType: 'fixed_small' | 'fixed_large'
  /** The number of predictions that a step extrapolates from, 1 to 3. */
  readonly solverOrder: number
  readonly lowerOrderFinal: boolean
  readonly eulerAtFinal: boolean
  /** The level at which the last step ends. */
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
  /** Timesteps for each step of the request; 1 if absent. */
  readonly callsPerStep?: number
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
