import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import { createNoiseScheduler } from '#workers/image/noise-schedulers/table.ts'

/** One way through the noise as diffusers takes it; made by make-noise-schedulers.py. */
interface GoldenCase {
  readonly config: Record<string, unknown>
  readonly steps: number
  readonly timesteps: readonly number[]
  readonly initNoiseSigma: number
  readonly start: readonly number[]
  readonly moves: readonly Record<
    'scaled' | 'prediction' | 'noise' | 'next' | 'clean' | 'noised',
    readonly number[]
  >[]
}

const CASES: readonly GoldenCase[] = JSON.parse(
  readFileSync(join(import.meta.dirname, 'noise-schedulers.json'), 'utf8'),
)

const nameOf = ({ config, steps }: GoldenCase) =>
  [
    config._class_name,
    config.prediction_type,
    config.timestep_spacing,
    config.rescale_betas_zero_snr ? 'zero SNR' : '',
    config.use_karras_sigmas ? 'Karras' : '',
    config.use_exponential_sigmas ? 'exponential' : '',
    config.use_beta_sigmas ? 'beta' : '',
    config.algorithm_type,
    config.solver_type,
    config.variance_type,
    config.final_sigmas_type,
    config.solver_order === undefined ? '' : `of order ${config.solver_order}`,
  ]
    .filter(Boolean)
    .join(' ')
    .concat(`, ${steps} steps`)

describe.each(CASES.map((golden) => [nameOf(golden), golden] as const))('%s', (_name, golden) => {
  const scheduler = createNoiseScheduler(golden.config, golden.steps)

  it('visits the timesteps of the reference from the same noise level', () => {
    // The reference finds them in 32 bits: a thousandth of a timestep is its rounding.
    expectClose(scheduler.timesteps, golden.timesteps, 1e-3)
    expectClose([scheduler.initNoiseSigma], [golden.initNoiseSigma])
  })

  it('follows the steps of the reference', () => {
    let latents = Float32Array.from(golden.start)
    for (const [index, move] of golden.moves.entries()) {
      expectClose(scheduler.scaleInput(latents, index), move.scaled)
      latents = Float32Array.from(
        scheduler.step(Float32Array.from(move.prediction), latents, index, () =>
          Float32Array.from(move.noise),
        ),
      )
      expectClose(latents, move.next)
    }
  })

  it('adds noise to a clean image as the reference does', () => {
    for (const [index, move] of golden.moves.entries()) {
      const noised = scheduler.addNoise(
        Float32Array.from(move.clean),
        Float32Array.from(move.noise),
        index,
      )
      expectClose(noised, move.noised)
    }
  })
})

it('refuses a scheduler that it does not know, naming it', () => {
  expect(() => createNoiseScheduler({ _class_name: 'FlowMatchEulerDiscreteScheduler' }, 5)).toThrow(
    'FlowMatchEulerDiscreteScheduler',
  )
  expect(() => createNoiseScheduler({ _class_name: 'toString' }, 5)).toThrow('toString')
})

it.each([
  ['PNDMScheduler', { skip_prk_steps: false }, 'skip_prk_steps false'],
  ['PNDMScheduler', {}, 'skip_prk_steps false'],
  [
    'PNDMScheduler',
    { skip_prk_steps: true, prediction_type: 'sample' },
    'prediction_type "sample"',
  ],
  [
    'EulerDiscreteScheduler',
    { use_karras_sigmas: true, use_exponential_sigmas: true },
    'use_exponential_sigmas excludes use_karras_sigmas',
  ],
  ['UniPCMultistepScheduler', { predict_x0: false }, 'predict_x0 false'],
  ['DEISMultistepScheduler', { solver_order: 4 }, 'solver_order 4'],
  ['KDPM2DiscreteScheduler', { prediction_type: 'sample' }, 'prediction_type "sample"'],
  ['DPMSolverSDEScheduler', { prediction_type: 'sample' }, 'prediction_type "sample"'],
  ['DDPMScheduler', { variance_type: 'learned_range' }, 'variance_type "learned_range"'],
  ['EulerDiscreteScheduler', { timestep_type: 'continuous' }, 'timestep_type "continuous"'],
  ['EulerDiscreteScheduler', { sigma_max: 80 }, 'sigma_max 80'],
  ['DPMSolverMultistepScheduler', { algorithm_type: 'dpmsolver' }, 'algorithm_type'],
  ['DPMSolverMultistepScheduler', { solver_order: 3 }, 'solver_order 3'],
  ['DPMSolverMultistepScheduler', { thresholding: true }, 'thresholding true'],
  ['LCMScheduler', { timestep_scaling: 1 }, 'timestep_scaling 1'],
  ['DDIMScheduler', { thresholding: true }, 'thresholding true'],
  ['DDIMScheduler', { trained_betas: [0.1, 0.2] }, 'trained_betas [0.1,0.2]'],
  ['DDIMScheduler', { beta_schedule: 'sigmoid' }, 'beta_schedule "sigmoid"'],
])('refuses what would change the steps of %s: %o', (_class_name, config, named) => {
  expect(() => createNoiseScheduler({ _class_name, ...config }, 5)).toThrow(named)
})

it('accepts settings that the class of the file does not read', () => {
  const leftOver = { clip_sample: true, thresholding: true, skip_prk_steps: true, sigma_min: null }
  const { _class_name, ...config } = { _class_name: 'EulerDiscreteScheduler', steps_offset: 1 }
  const plain = createNoiseScheduler({ _class_name, ...config }, 5)
  const full = createNoiseScheduler({ _class_name, ...config, ...leftOver }, 5)
  const [latents, prediction] = [Float32Array.of(5, -9), Float32Array.of(1, 2)]
  const noise = () => latents
  expect(full.step(prediction, latents, 0, noise)).toEqual(
    plain.step(prediction, latents, 0, noise),
  )
})

it.each([
  ['of few steps', 6, {}, false],
  ['of many steps', 16, {}, true],
  ['of few steps that keep their order', 6, { lower_order_final: false }, true],
  ['of many steps that end after Euler', 16, { euler_at_final: true }, false],
  ['of many steps that end without noise', 16, { final_sigmas_type: 'zero' }, false],
])('the last %s of DPM-Solver looks back only where it is stable', (_of, steps, config, looks) => {
  const last = (before: number): Float32Array => {
    const scheduler = createNoiseScheduler(
      {
        _class_name: 'DPMSolverMultistepScheduler',
        final_sigmas_type: 'sigma_min',
        ...config,
      },
      steps,
    )
    const noise = () => Float32Array.of(0)
    scheduler.step(Float32Array.of(before), Float32Array.of(1), steps - 2, noise)
    return scheduler.step(Float32Array.of(0.5), Float32Array.of(1), steps - 1, noise)
  }
  expect((last(0)[0] as number) !== (last(0.5)[0] as number)).toBe(looks)
})

it('leaves a trace of the image at the end of a cosine schedule', () => {
  const config = {
    _class_name: 'DDIMScheduler',
    beta_schedule: 'squaredcos_cap_v2',
    timestep_spacing: 'trailing',
  }
  const scheduler = createNoiseScheduler(config, 4)
  const noised = scheduler.addNoise(Float32Array.of(1), Float32Array.of(0), 0)
  // The root of diffusers' last value of `alphas_cumprod`, 2.4288e-9: its β is cut at 0.999.
  expect(noised[0]).toBeCloseTo(4.9283e-5, 8)
})

it.each(['HeunDiscreteScheduler', 'KDPM2DiscreteScheduler', 'KDPM2AncestralDiscreteScheduler'])(
  '%s begins in the middle of its steps as it does at their start',
  (_class_name) => {
    const scheduler = createNoiseScheduler({ _class_name, timestep_spacing: 'trailing' }, 4)
    expect(scheduler.timesteps).toHaveLength(7)
    const at = 2 * (scheduler.callsPerStep ?? 1)
    const latents = Float32Array.of(3)
    const once = scheduler.step(Float32Array.of(1), latents, at, () => Float32Array.of(0))
    const whole = scheduler.step(Float32Array.of(1), once, at + 1, () => Float32Array.of(0))
    // The noise is the same in both runs, so the step is a straight line over the noise level.
    const sigma = (index: number) =>
      scheduler.addNoise(Float32Array.of(0), Float32Array.of(1), index)[0] as number
    expect(whole[0]).toBeLessThan(3)
    if (_class_name !== 'KDPM2AncestralDiscreteScheduler') {
      expect(whole[0]).toBeCloseTo(3 + sigma(at + 2) - sigma(at), 4)
    }
  },
)

it('visits no timestep twice if LCM runs more steps than its distillation', () => {
  const config = { _class_name: 'LCMScheduler', original_inference_steps: 10 }
  expect(new Set(createNoiseScheduler(config, 12).timesteps).size).toBe(12)
})

/** Equal within float32 rounding of the larger magnitude. */
function expectClose(
  actual: ArrayLike<number>,
  expected: readonly number[],
  tolerance = 1e-4,
): void {
  expect(actual).toHaveLength(expected.length)
  for (const [i, value] of expected.entries()) {
    expect(Math.abs((actual[i] as number) - value) / (1 + Math.abs(value))).toBeLessThan(tolerance)
  }
}
