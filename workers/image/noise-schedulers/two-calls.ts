import { ancestralShare, noiseBy, planSigmas, scaleBy, slopeOf } from './euler.ts'
import { timestepOf } from './levels.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

/** One step of a method with two runs of the U-Net: at its start and at a second level. */
interface Leg {
  readonly from: number
  /** The level of the second run; 0 for the last step, which has only one. */
  readonly second: number
  /** The level at which the step ends, before fresh noise. */
  readonly to: number
  readonly fresh: number
}

interface Method {
  legOf(from: number, to: number): Leg
  /** The direction of the whole step from those of its two runs. */
  join(first: number, second: number): number
}

/** Heun's method, Karras et al. 2022, algorithm 1: the mean of both ends of a step. */
export function createHeun(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  return createTwoCalls(config, steps, {
    legOf: (from, to) => ({ from, second: to, to, fresh: 0 }),
    join: (first, second) => (first + second) / 2,
  })
}

/** DPM-Solver-2, Lu et al. 2022, as in Karras et al. 2022, algorithm 2: the middle of a step. */
export function createKdpm2(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  return createTwoCalls(config, steps, {
    legOf: (from, to) => ({ from, second: Math.sqrt(from * to), to, fresh: 0 }),
    join: (_first, second) => second,
  })
}

/** The same to a level below the next, followed by fresh noise up to it. */
export function createKdpm2Ancestral(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  return createTwoCalls(config, steps, {
    legOf(from, next) {
      const fresh = ancestralShare(from, next)
      const to = Math.sqrt(next ** 2 - fresh ** 2)
      return { from, second: Math.sqrt(from * to), to, fresh }
    },
    join: (_first, second) => second,
  })
}

/** Timesteps are the runs of the U-Net: two for each step, one for the last. */
function createTwoCalls(
  config: NoiseSchedulerConfig,
  steps: number,
  { legOf, join }: Method,
): NoiseScheduler {
  const { legs, levels, ...runs } = planRuns(config, steps, legOf)
  let begun: { readonly latents: Float32Array; readonly slope: Float32Array } | undefined
  return {
    ...runs,
    step(prediction, latents, index, noise) {
      const { from, second, to, fresh } = legs[Math.floor(index / 2)] as Leg
      const slope = slopeOf(config, prediction, latents, levels[index] as number)
      if (begun === undefined) {
        if (second !== 0) begun = { latents, slope }
        return latents.map((sample, i) => sample + (slope[i] as number) * (second - from))
      }
      const first = begun
      begun = undefined
      const added = fresh === 0 ? undefined : noise()
      return first.latents.map((sample, i) => {
        const whole = join(first.slope[i] as number, slope[i] as number)
        return sample + whole * (to - from) + fresh * (added?.[i] ?? 0)
      })
    },
  }
}

/** The levels of all runs, and what follows from them alone. `legOf` divides a step. */
export function planRuns<L extends Pick<Leg, 'from' | 'second'>>(
  config: NoiseSchedulerConfig,
  steps: number,
  legOf: (from: number, to: number) => L,
) {
  const plan = planSigmas(config, steps)
  const sigmaAt = (at: number) => plan.sigmas[at] as number
  const legs = plan.timesteps.map((_, at) => legOf(sigmaAt(at), sigmaAt(at + 1)))
  const runs = legs.flatMap(({ from, second }, at) => {
    const timestep = timestepAt(config, plan.timesteps[at] as number)
    const first = { timestep, level: from, noise: from }
    if (second === 0) return [first]
    const isNext = second === sigmaAt(at + 1)
    const later = isNext ? (plan.timesteps[at + 1] as number) : timestepOf(second, plan.trained)
    return [first, { timestep: later, level: second, noise: sigmaAt(at + 1) }]
  })
  const levels = runs.map(({ level }) => level)
  return {
    legs,
    levels,
    timesteps: runs.map(({ timestep }) => timestep),
    callsPerStep: 2,
    initNoiseSigma: plan.initNoiseSigma,
    scaleInput: scaleBy(levels),
    addNoise: noiseBy(runs.map((run) => run.noise)),
  }
}

function timestepAt({ roundsTimesteps }: NoiseSchedulerConfig, timestep: number): number {
  return roundsTimesteps ? Math.round(timestep) : timestep
}
