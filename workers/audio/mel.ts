import { planFft } from './fft.ts'

/** What `preprocessor_config.json` says of the features; counts are derived from it alone. */
export interface MelConfig {
  /** Samples per second. */
  readonly sampleRate: number
  /** Samples of one Fourier transform. */
  readonly windowSamples: number
  /** Samples between two frames: 160 is 10 ms at 16 kHz. */
  readonly hopSamples: number
  readonly melBins: number
  /** Samples of one window of the model: 480,000 is 30 s at 16 kHz. */
  readonly chunkSamples: number
}

/** A function from at most one window of samples to `float32[melBins, frames]`. */
export type MelExtractor = (samples: Float32Array) => Float32Array

// Below this power a bin counts as silent: −100 dB.
const POWER_MIN = 1e-10
// Everything quieter than the loudest bin by more than this many powers of ten is cut off.
const DYNAMIC_RANGE = 8

/**
 * Plans Whisper's log-mel features (Radford et al. 2022, section 2.2): Hann windows, power spectrum,
 * Slaney-style mel filters, log10, clamped to 8 below the maximum, then (x + 4) / 4. Shorter input is
 * padded with silence to a whole window.
 */
export function planLogMel(config: MelConfig): MelExtractor {
  const { windowSamples, hopSamples, melBins, chunkSamples } = config
  const fft = planFft(windowSamples)
  const hann = Float64Array.from(
    { length: windowSamples },
    (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / windowSamples),
  )
  const filters = melFilters(config)
  const frames = Math.floor(chunkSamples / hopSamples)
  const pair = [new Float64Array(windowSamples), new Float64Array(windowSamples)] as const
  const powers = [spectrum(windowSamples), spectrum(windowSamples)] as const
  return (samples) => {
    const features = new Float32Array(melBins * frames)
    // Most of a window is what a short clip is padded with.
    const isPadding = (t: number): boolean => {
      const start = t * hopSamples - windowSamples / 2
      const mirroredEnd = 2 * (chunkSamples - 1) - (start + windowSamples - 1)
      return start >= samples.length && mirroredEnd >= samples.length
    }
    features.fill(Math.log10(POWER_MIN))
    const heard = Array.from({ length: frames }, (_, t) => t).filter((t) => !isPadding(t))
    for (let at = 0; at < heard.length; at += 2) {
      const two = heard.slice(at, at + 2)
      for (const [side, t] of two.entries()) {
        cutFrame(samples, t * hopSamples - windowSamples / 2, chunkSamples, hann, pair[side & 1]!)
      }
      fft.powers(pair, powers)
      for (const [side, t] of two.entries()) {
        for (const [bin, filter] of filters.entries()) {
          const energy = energyOf(filter, powers[side & 1]!)
          features[bin * frames + t] = Math.log10(Math.max(energy, POWER_MIN))
        }
      }
    }
    const floor = features.reduce((a, b) => Math.max(a, b)) - DYNAMIC_RANGE
    for (let i = 0; i < features.length; i++)
      features[i] = (Math.max(features[i] as number, floor) + 4) / 4
    return features
  }
}

function spectrum(windowSamples: number): Float64Array {
  return new Float64Array(windowSamples / 2 + 1)
}

/** One windowed frame; the signal is mirrored at both ends of the window of the model. */
function cutFrame(
  samples: Float32Array,
  start: number,
  chunkSamples: number,
  hann: Float64Array,
  into: Float64Array,
): void {
  for (let i = 0; i < into.length; i++) {
    let at = start + i
    if (at < 0) at = -at
    if (at >= chunkSamples) at = 2 * (chunkSamples - 1) - at
    into[i] = (hann[i] as number) * (samples[at] ?? 0)
  }
}

interface MelFilter {
  /** The first frequency bin with a weight. */
  readonly first: number
  readonly weights: readonly number[]
}

function energyOf({ first, weights }: MelFilter, power: Float64Array): number {
  let energy = 0
  for (let i = 0; i < weights.length; i++) {
    energy += (weights[i] as number) * (power[first + i] as number)
  }
  return energy
}

/** Triangles of equal area, evenly spaced on Slaney's mel scale from 0 Hz to half the sample rate. */
function melFilters({ sampleRate, windowSamples, melBins }: MelConfig): MelFilter[] {
  const highest = hertzToMel(sampleRate / 2)
  const corners = Array.from({ length: melBins + 2 }, (_, i) =>
    melToHertz((highest * i) / (melBins + 1)),
  )
  const frequencies = Array.from(
    { length: windowSamples / 2 + 1 },
    (_, i) => (i * sampleRate) / windowSamples,
  )
  return Array.from({ length: melBins }, (_, bin) => {
    const [low, middle, high] = corners.slice(bin, bin + 3) as [number, number, number]
    const weights = frequencies.map((frequency) => {
      const triangle = Math.min(
        (frequency - low) / (middle - low),
        (high - frequency) / (high - middle),
      )
      return (Math.max(0, triangle) * 2) / (high - low)
    })
    const first = Math.max(
      0,
      weights.findIndex((weight) => weight > 0),
    )
    const last = weights.findLastIndex((weight) => weight > 0)
    return { first, weights: weights.slice(first, last + 1) }
  })
}

// Slaney's scale: linear below 1 kHz (15 mels), logarithmic above, 27 mels per factor of 6.4.
const BREAK_HERTZ = 1000
const BREAK_MEL = 15
const LOG_STEP = Math.log(6.4) / 27

function hertzToMel(hertz: number): number {
  return hertz < BREAK_HERTZ
    ? (3 * hertz) / 200
    : BREAK_MEL + Math.log(hertz / BREAK_HERTZ) / LOG_STEP
}

function melToHertz(mel: number): number {
  return mel < BREAK_MEL ? (200 * mel) / 3 : BREAK_HERTZ * Math.exp(LOG_STEP * (mel - BREAK_MEL))
}
