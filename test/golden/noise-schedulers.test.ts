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

const nameOf = ({ config }: GoldenCase) =>
  [
    config._class_name,
    config.prediction_type,
    config.timestep_spacing,
    config.rescale_betas_zero_snr ? 'zero SNR' : '',
  ]
    .filter(Boolean)
    .join(' ')

describe.each(CASES.map((golden) => [nameOf(golden), golden] as const))('%s', (_name, golden) => {
  const scheduler = createNoiseScheduler(golden.config, golden.steps)

  it('visits the timesteps of the reference from the same noise level', () => {
    expectClose(scheduler.timesteps, golden.timesteps)
    expectClose([scheduler.initNoiseSigma], [golden.initNoiseSigma])
  })

  it('takes the steps of the reference', () => {
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

  it('adds noise to a clean picture as the reference does', () => {
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
  expect(() => createNoiseScheduler({ _class_name: 'HeunScheduler' }, 5)).toThrow('HeunScheduler')
})

/** Equal within float32 rounding of the larger magnitude. */
function expectClose(actual: ArrayLike<number>, expected: readonly number[]): void {
  expect(actual).toHaveLength(expected.length)
  for (const [i, value] of expected.entries()) {
    expect(Math.abs((actual[i] as number) - value) / (1 + Math.abs(value))).toBeLessThan(1e-3)
  }
}
