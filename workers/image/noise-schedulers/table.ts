import { createDdim } from './ddim.ts'
import { createEuler } from './euler.ts'
import { createLcm } from './lcm.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

type Create = (config: NoiseSchedulerConfig, steps: number) => NoiseScheduler

// Class names as `scheduler_config.json` holds them. PNDM without its warm-up and DPM-Solver solve the
// same equation; DDIM stands in for the former, as other runtimes do.
const NOISE_SCHEDULERS: Readonly<Record<string, Create>> = {
  DDIMScheduler: createDdim,
  PNDMScheduler: createDdim,
  EulerDiscreteScheduler: createEuler,
  LCMScheduler: createLcm,
}

/** The noise scheduler that a model folder asks for. Throws an `Error` naming an unknown class. */
export function createNoiseScheduler(
  config: Record<string, unknown>,
  steps: number,
): NoiseScheduler {
  const className = String(config._class_name)
  const create = NOISE_SCHEDULERS[className]
  if (create === undefined) throw new Error(`the noise scheduler ${className} is not supported`)
  return create(parseNoiseSchedulerConfig(config), steps)
}

/** Fills in what diffusers assumes where the file is silent. */
export function parseNoiseSchedulerConfig(raw: Record<string, unknown>): NoiseSchedulerConfig {
  const number = (name: string, fallback: number) =>
    typeof raw[name] === 'number' ? raw[name] : fallback
  const flag = (name: string, fallback: boolean) =>
    typeof raw[name] === 'boolean' ? raw[name] : fallback
  const className = raw._class_name
  return {
    numTrainTimesteps: number('num_train_timesteps', 1000),
    betaStart: number('beta_start', className === 'LCMScheduler' ? 0.00085 : 0.0001),
    betaEnd: number('beta_end', className === 'LCMScheduler' ? 0.012 : 0.02),
    betaSchedule: oneOf(
      raw,
      'beta_schedule',
      ['linear', 'scaled_linear', 'squaredcos_cap_v2'],
      className === 'LCMScheduler' ? 'scaled_linear' : 'linear',
    ),
    predictionType: oneOf(raw, 'prediction_type', ['epsilon', 'v_prediction', 'sample'], 'epsilon'),
    timestepSpacing: oneOf(
      raw,
      'timestep_spacing',
      ['leading', 'trailing', 'linspace'],
      className === 'EulerDiscreteScheduler' ? 'linspace' : 'leading',
    ),
    stepsOffset: number('steps_offset', 0),
    setAlphaToOne: flag('set_alpha_to_one', true),
    rescaleBetasZeroSnr: flag('rescale_betas_zero_snr', false),
    clipSample: flag('clip_sample', className === 'DDIMScheduler'),
    clipSampleRange: number('clip_sample_range', 1),
    originalInferenceSteps: number('original_inference_steps', 50),
  }
}

function oneOf<const T extends string>(
  raw: Record<string, unknown>,
  name: string,
  values: readonly T[],
  fallback: T,
): T {
  const value = raw[name] ?? fallback
  const match = values.find((candidate) => candidate === value)
  if (match === undefined)
    throw new Error(`scheduler_config.json: ${name} "${String(value)}" is not supported`)
  return match
}
