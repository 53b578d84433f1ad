import { SAMPLE_RATE } from './decode.ts'

// Pauses between words are at least this long; shorter ones occur within words.
const PAUSE_SAMPLES = 0.2 * SAMPLE_RATE
const STEP_SAMPLES = 0.02 * SAMPLE_RATE
// The share of a window before the cut.
const KEPT_SHARE = 0.75

/**
 * The middle of the quietest fifth of a second in the last quarter of a window, usually a pause
 * between words.
 */
export function findQuietCut(samples: Float32Array): number {
  const powers: number[] = []
  for (let at = Math.floor(samples.length * KEPT_SHARE); at < samples.length; at += STEP_SAMPLES) {
    const step = samples.subarray(at, at + STEP_SAMPLES)
    powers.push(step.reduce((sum, value) => sum + value * value, 0))
  }
  const width = PAUSE_SAMPLES / STEP_SAMPLES
  let best = { power: Infinity, step: powers.length }
  for (let step = 0; step + width <= powers.length; step++) {
    const power = powers.slice(step, step + width).reduce((sum, value) => sum + value, 0)
    if (power < best.power) best = { power, step: step + width / 2 }
  }
  const cut = Math.floor(samples.length * KEPT_SHARE) + best.step * STEP_SAMPLES
  return Math.min(samples.length, cut)
}
