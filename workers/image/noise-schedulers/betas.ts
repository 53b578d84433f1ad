import type { NoiseSchedulerConfig } from './types.ts'

/**
 * ᾱ_t, the products of 1 − β: the share of the image that is left after t steps of noise (Ho et al.
 * 2020, eq. 4). With zero terminal SNR (Lin et al. 2023, algorithm 1) the last one is 0.
 */
export function cumulativeAlphas(config: NoiseSchedulerConfig): Float64Array {
  const betas = betasOf(config)
  const products = new Float64Array(betas.length)
  let product = 1
  for (const [t, beta] of betas.entries()) {
    product *= 1 - beta
    products[t] = product
  }
  return config.rescaleBetasZeroSnr ? rescaleToZeroSnr(products) : products
}

/** ᾱ by timestep; below the first timestep it is that of the clean image, or close to it. */
export function alphasByTimestep(config: NoiseSchedulerConfig): (timestep: number) => number {
  const alphas = cumulativeAlphas(config)
  const finalAlpha = config.setAlphaToOne ? 1 : (alphas[0] as number)
  return (timestep) => (timestep < 0 ? finalAlpha : (alphas[timestep] as number))
}

// With zero terminal SNR σ would be infinite; diffusers uses this value.
const LAST_ALPHA_OF_ZERO_SNR = 2 ** -24

/** σ_t = √((1 − ᾱ) / ᾱ), the ratio of noise to image, always finite. */
export function noiseLevels(config: NoiseSchedulerConfig): Float64Array {
  const alphas = cumulativeAlphas(config)
  if (config.rescaleBetasZeroSnr) alphas[alphas.length - 1] = LAST_ALPHA_OF_ZERO_SNR
  return alphas.map((alpha) => Math.sqrt((1 - alpha) / alpha))
}

/**
 * Timesteps in falling order for a number of steps, with the spacing of the configuration. Equal
 * distances can fall between two trained timesteps: `settle` rounds those.
 */
export function spacedTimesteps(
  config: NoiseSchedulerConfig,
  steps: number,
  settle: (timestep: number) => number = Math.round,
): number[] {
  const total = config.numTrainTimesteps
  const range = Array.from({ length: steps }, (_, i) => i)
  switch (config.timestepSpacing) {
    case 'linspace':
      return range.map((i) => settle((i * (total - 1)) / Math.max(1, steps - 1))).reverse()
    case 'leading':
      return range
        .map((i) => Math.round(i * Math.floor(total / steps)) + config.stepsOffset)
        .reverse()
    case 'trailing':
      return range.map((i) => Math.round(total - (i * total) / steps) - 1)
  }
}

function betasOf({ numTrainTimesteps: n, betaStart, betaEnd, betaSchedule }: NoiseSchedulerConfig) {
  const line = (from: number, to: number) =>
    Float64Array.from({ length: n }, (_, i) => from + ((to - from) * i) / (n - 1))
  switch (betaSchedule) {
    case 'linear':
      return line(betaStart, betaEnd)
    case 'scaled_linear':
      return line(Math.sqrt(betaStart), Math.sqrt(betaEnd)).map((root) => root * root)
    case 'squaredcos_cap_v2':
      return Float64Array.from({ length: n }, (_, i) =>
        Math.min(1 - cosineAlpha((i + 1) / n) / cosineAlpha(i / n), 0.999),
      )
  }
}

function cosineAlpha(t: number): number {
  return Math.cos(((t + 0.008) / 1.008) * (Math.PI / 2)) ** 2
}

function rescaleToZeroSnr(products: Float64Array): Float64Array {
  const roots = products.map(Math.sqrt)
  const first = roots[0] as number
  const last = roots[roots.length - 1] as number
  return roots.map((root) => (((root - last) * first) / (first - last)) ** 2)
}
