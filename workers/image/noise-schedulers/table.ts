import { createDdim } from './ddim.ts'
import { createDdpm } from './ddpm.ts'
import { createDeis } from './deis.ts'
import { createDpmSolver } from './dpm-solver.ts'
import { createDpmSolverSde } from './dpm-solver-sde.ts'
import { createEuler, createEulerAncestral } from './euler.ts'
import { createLcm } from './lcm.ts'
import { createLms } from './lms.ts'
import { createPndm } from './pndm.ts'
import { createTcd } from './tcd.ts'
import { createHeun, createKdpm2, createKdpm2Ancestral } from './two-calls.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'
import { createUniPc } from './unipc.ts'

interface Row {
  readonly create: (config: NoiseSchedulerConfig, steps: number) => NoiseScheduler
  /** Defaults of diffusers for this class, if they differ from the common ones. */
  readonly defaults?: Readonly<Record<string, unknown>>
  /** Settings that only other classes read. */
  readonly ignores?: readonly string[]
  /** The supported values of a setting; others would change the steps. */
  readonly only?: Readonly<Record<string, readonly unknown[]>>
}

const CURVES = ['use_karras_sigmas', 'use_exponential_sigmas', 'use_beta_sigmas']
const UNREAD = ['rescale_betas_zero_snr', 'thresholding', 'final_sigmas_type']
// KDPM2 and DPM-Solver++ (SDE), which visit the middle of a step.
const MIDDLE: Omit<Row, 'create'> = {
  defaults: { timestep_spacing: 'linspace', beta_start: 0.00085, beta_end: 0.012 },
  ignores: [...UNREAD, 'clip_sample'],
  only: { prediction_type: ['epsilon', 'v_prediction'] },
}

// Class names as written in `scheduler_config.json`.
const ROWS: Readonly<Record<string, Row>> = {
  DDIMScheduler: { create: createDdim, defaults: { clip_sample: true }, ignores: CURVES },
  PNDMScheduler: {
    create: createPndm,
    defaults: { set_alpha_to_one: false },
    ignores: ['clip_sample', 'rescale_betas_zero_snr', 'thresholding'],
    only: { skip_prk_steps: [true], prediction_type: ['epsilon', 'v_prediction'] },
  },
  EulerDiscreteScheduler: {
    create: createEuler,
    defaults: { timestep_spacing: 'linspace' },
    ignores: ['clip_sample', 'thresholding'],
    only: {
      timestep_type: ['discrete'],
      interpolation_type: ['linear'],
      sigma_min: [],
      sigma_max: [],
    },
  },
  EulerAncestralDiscreteScheduler: {
    create: createEulerAncestral,
    defaults: { timestep_spacing: 'linspace' },
    ignores: ['clip_sample', 'thresholding', ...CURVES, 'final_sigmas_type'],
    only: { prediction_type: ['epsilon', 'v_prediction'] },
  },
  DPMSolverMultistepScheduler: {
    create: createDpmSolver,
    defaults: { timestep_spacing: 'linspace' },
    ignores: ['clip_sample'],
    only: {
      algorithm_type: ['dpmsolver++', 'sde-dpmsolver++'],
      solver_type: ['midpoint'],
      solver_order: [1, 2],
      use_lu_lambdas: [false],
      use_flow_sigmas: [false],
      variance_type: [],
      lambda_min_clipped: [],
    },
  },
  LCMScheduler: {
    create: createLcm,
    defaults: { beta_start: 0.00085, beta_end: 0.012, beta_schedule: 'scaled_linear' },
    only: { timestep_scaling: [10] },
  },
  TCDScheduler: {
    create: createTcd,
    defaults: { beta_start: 0.00085, beta_end: 0.012, beta_schedule: 'scaled_linear' },
    ignores: ['clip_sample', 'thresholding'],
  },
  DDPMScheduler: {
    create: createDdpm,
    defaults: { clip_sample: true },
    ignores: ['set_alpha_to_one'],
    only: { variance_type: ['fixed_small', 'fixed_large'] },
  },
  LMSDiscreteScheduler: {
    create: createLms,
    defaults: { timestep_spacing: 'linspace' },
    ignores: [...UNREAD, 'clip_sample'],
  },
  HeunDiscreteScheduler: {
    create: createHeun,
    defaults: { timestep_spacing: 'linspace', beta_start: 0.00085, beta_end: 0.012 },
    ignores: UNREAD,
  },
  KDPM2DiscreteScheduler: { create: createKdpm2, ...MIDDLE },
  DPMSolverSDEScheduler: { create: createDpmSolverSde, ...MIDDLE },
  KDPM2AncestralDiscreteScheduler: { create: createKdpm2Ancestral, ...MIDDLE },
  UniPCMultistepScheduler: {
    create: createUniPc,
    defaults: { timestep_spacing: 'linspace' },
    ignores: ['clip_sample'],
    only: {
      predict_x0: [true],
      solver_order: [1, 2, 3],
      solver_p: [],
      use_flow_sigmas: [false],
      use_dynamic_shifting: [false],
      sigma_min: [],
      sigma_max: [],
    },
  },
  DEISMultistepScheduler: {
    create: createDeis,
    defaults: { timestep_spacing: 'linspace', final_sigmas_type: 'sigma_min' },
    ignores: ['clip_sample', 'rescale_betas_zero_snr', 'final_sigmas_type'],
    only: {
      solver_order: [1, 2, 3],
      use_flow_sigmas: [false],
      use_dynamic_shifting: [false],
    },
  },
}
// For every class that does not ignore them.
const ONLY: Readonly<Record<string, readonly unknown[]>> = {
  thresholding: [false],
  trained_betas: [],
}
// Schedulers without this setting are refused, because they begin with Runge-Kutta steps.
const REQUIRED = 'skip_prk_steps'

/** The noise scheduler of a model folder. Throws an `Error` that names an unsupported setting. */
export function createNoiseScheduler(
  config: Record<string, unknown>,
  steps: number,
): NoiseScheduler {
  return rowOf(config).create(parseNoiseSchedulerConfig(config), steps)
}

// The classes that visit whole timesteps on the curve of Karras.
const ROUNDING = /^KDPM2/
const TRAIN_TIMESTEPS_MAX = 100_000 // published models have 1,000

/** Fills in diffusers' defaults for absent settings. */
function parseNoiseSchedulerConfig(given: Record<string, unknown>): NoiseSchedulerConfig {
  const { defaults = {}, ignores = [], only = {} } = rowOf(given)
  const kept = Object.entries(given).filter(
    ([name, value]) => value !== null && !ignores.includes(name),
  )
  const raw: Record<string, unknown> = { ...defaults, ...Object.fromEntries(kept) }
  refuseOthers(raw, { ...ONLY, ...only })
  const steps = raw.num_train_timesteps ?? 1000
  if (!Number.isInteger(steps) || Number(steps) < 1 || Number(steps) > TRAIN_TIMESTEPS_MAX) {
    throw new Error(
      `num_train_timesteps is ${String(steps)}, expected a whole number up to ${TRAIN_TIMESTEPS_MAX}`,
    )
  }
  const number = (name: string, fallback: number) =>
    typeof raw[name] === 'number' ? raw[name] : fallback
  const flag = (name: string, fallback: boolean) =>
    typeof raw[name] === 'boolean' ? raw[name] : fallback
  return {
    numTrainTimesteps: number('num_train_timesteps', 1000),
    betaStart: number('beta_start', 0.0001),
    betaEnd: number('beta_end', 0.02),
    betaSchedule: oneOf(
      raw,
      'beta_schedule',
      ['linear', 'scaled_linear', 'squaredcos_cap_v2'],
      'linear',
    ),
    predictionType: oneOf(raw, 'prediction_type', ['epsilon', 'v_prediction', 'sample'], 'epsilon'),
    timestepSpacing: oneOf(raw, 'timestep_spacing', ['leading', 'trailing', 'linspace'], 'leading'),
    stepsOffset: number('steps_offset', 0),
    setAlphaToOne: flag('set_alpha_to_one', true),
    rescaleBetasZeroSnr: flag('rescale_betas_zero_snr', false),
    clipSample: flag('clip_sample', false),
    clipSampleRange: number('clip_sample_range', 1),
    sigmaCurve: curveOf(raw),
    roundsTimesteps: ROUNDING.test(String(given._class_name)) && curveOf(raw) === 'karras',
    algorithmType: raw.algorithm_type === 'sde-dpmsolver++' ? 'sde-dpmsolver++' : 'dpmsolver++',
    solverType: raw.solver_type === 'bh1' ? 'bh1' : 'bh2',
    disableCorrector: Array.isArray(raw.disable_corrector) ? raw.disable_corrector : [],
    varianceType: raw.variance_type === 'fixed_large' ? 'fixed_large' : 'fixed_small',
    solverOrder: number('solver_order', 2),
    lowerOrderFinal: flag('lower_order_final', true),
    eulerAtFinal: flag('euler_at_final', false),
    finalSigmasType: oneOf(raw, 'final_sigmas_type', ['zero', 'sigma_min'], 'zero'),
    originalInferenceSteps: number('original_inference_steps', 50),
  }
}

function rowOf(config: Record<string, unknown>): Row {
  const className = String(config._class_name)
  const row = Object.hasOwn(ROWS, className) ? ROWS[className] : undefined
  if (row === undefined) throw new Error(`the noise scheduler ${className} is not supported`)
  return row
}

/** Throws for a setting that would change the steps in an unsupported way. */
function refuseOthers(
  raw: Record<string, unknown>,
  only: Readonly<Record<string, readonly unknown[]>>,
): void {
  for (const [name, values] of Object.entries(only)) {
    if (raw[name] === undefined ? name === REQUIRED : !values.includes(raw[name])) {
      throw new Error(
        `scheduler_config.json: ${name} ${JSON.stringify(raw[name] ?? false)} is not supported`,
      )
    }
  }
}

function curveOf(raw: Record<string, unknown>): NoiseSchedulerConfig['sigmaCurve'] {
  const curves = (['karras', 'exponential', 'beta'] as const).filter(
    (curve) => raw[`use_${curve}_sigmas`] === true,
  )
  const [curve = 'trained', other] = curves
  if (other === undefined) return curve
  throw new Error(`scheduler_config.json: use_${other}_sigmas excludes use_${curve}_sigmas`)
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
