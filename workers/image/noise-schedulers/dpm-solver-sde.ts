import { ancestralShare, slopeOf } from './euler.ts'
import { planRuns } from './two-calls.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

/**
 * DPM-Solver++ (SDE), Lu et al. 2022, with the ancestral steps of Karras et al. 2022: a step to the
 * middle (in ln σ), and the whole step with the clean latents that the U-Net predicts there.
 *
 * Both go below their level and add noise up to it. The noise is a Brownian motion W over σ: the
 * whole step has that of its first half, continued. So with standard normals n₁ and n₂ the halves
 * have √(σ₀ − σ₁) n₁ and √(σ₁ − σ₂) n₂, and the whole has their sum.
 */
export function createDpmSolverSde(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const { legs, levels, ...runs } = planRuns(config, steps, (from, to) => {
    return { from, second: Math.sqrt(from * to), to }
  })
  let begun: { readonly latents: Float32Array; readonly noise: Float32Array } | undefined
  return {
    ...runs,
    step(prediction, latents, index, noise) {
      const { from, second, to } = legs[Math.floor(index / 2)] as (typeof legs)[number]
      const level = levels[index] as number
      const slope = slopeOf(config, prediction, latents, level)
      const cleanAt = (i: number) => (latents[i] as number) - (slope[i] as number) * level
      if (second === 0) return latents.map((_, i) => cleanAt(i))
      const drawn = noise()
      if (begun === undefined) {
        begun = { latents, noise: drawn }
        const [kept, fresh] = sharesOf(from, second)
        return latents.map((sample, i) => {
          return cleanAt(i) + kept * (sample - cleanAt(i)) + fresh * (drawn[i] as number)
        })
      }
      const first = begun
      begun = undefined
      const [kept, fresh] = sharesOf(from, to)
      const early = Math.sqrt((from - second) / (from - to))
      const late = Math.sqrt((second - to) / (from - to))
      return first.latents.map((sample, i) => {
        const whole = early * (first.noise[i] as number) + late * (drawn[i] as number)
        return cleanAt(i) + kept * (sample - cleanAt(i)) + fresh * whole
      })
    },
  }
}

/** The shares of kept and of fresh noise in a step between two levels. */
function sharesOf(from: number, to: number): readonly [kept: number, fresh: number] {
  const fresh = ancestralShare(from, to)
  return [Math.sqrt(to ** 2 - fresh ** 2) / from, fresh]
}
