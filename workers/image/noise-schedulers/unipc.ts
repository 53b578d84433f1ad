import { cleanOf, levelAt, unscaledLevels } from './dpm-solver.ts'
import { type Level, solverLevels } from './levels.ts'
import type { NoiseScheduler, NoiseSchedulerConfig } from './types.ts'

/** One visited level with the clean latents that were predicted there. */
interface Visit {
  readonly level: Level
  readonly clean: Float32Array
}

/**
 * UniPC, Zhao et al. 2023, in its form for predicted clean latents: each new prediction first
 * corrects the step that led to it (UniC), then the next step is predicted (UniP).
 */
export function createUniPc(config: NoiseSchedulerConfig, steps: number): NoiseScheduler {
  const { timesteps, levels } = solverLevels(config, steps)
  /** Newest first. */
  let visits: readonly Visit[] = []
  let last: { latents: Float32Array; order: number } | undefined
  return {
    timesteps,
    ...unscaledLevels(levels),
    step(prediction, latents, index) {
      const level = levelAt(levels, index)
      const here = { level, clean: cleanOf(config, prediction, latents, level.alpha) }
      const isCorrected = last !== undefined && !config.disableCorrector.includes(index - 1)
      const from =
        last !== undefined && isCorrected
          ? move(config, { latents: last.latents, visits, order: last.order }, level, here.clean)
          : latents
      visits = [here, ...visits].slice(0, config.solverOrder)
      const orderMax = config.lowerOrderFinal ? steps - index : config.solverOrder
      const order = Math.min(config.solverOrder, orderMax, visits.length)
      last = { latents: from, order }
      const to = levelAt(levels, index + 1)
      // The limit of every order where no noise is left.
      if (to.sigma === 0) return here.clean.map((value) => to.alpha * value)
      return move(config, { latents: from, visits, order }, to)
    },
  }
}

/** Equations 3 (predictor) and 8 (corrector, with the prediction at the end of the step). */
function move(
  config: NoiseSchedulerConfig,
  step: {
    readonly latents: Float32Array
    readonly visits: readonly Visit[]
    readonly order: number
  },
  to: Level,
  arrived?: Float32Array,
): Float32Array {
  const [start, ...earlier] = step.visits.slice(0, step.order) as [Visit, ...Visit[]]
  const change = start.level.lambda - to.lambda
  const ratios = earlier.map(({ level }) => (level.lambda - start.level.lambda) / -change)
  const isBh1 = config.solverType === 'bh1'
  const scale = isBh1 ? change : Math.expm1(change)
  const points = arrived === undefined ? ratios : [...ratios, 1]
  const weights = weightsOf(points, change, scale)
  const kept = to.sigma / start.level.sigma
  const base = to.alpha * Math.expm1(change)
  return step.latents.map((sample, i) => {
    const now = start.clean[i] as number
    let slope = 0
    for (const [at, { clean }] of earlier.entries()) {
      slope += ((weights[at] as number) * ((clean[i] as number) - now)) / (ratios[at] as number)
    }
    if (arrived !== undefined) slope += (weights.at(-1) as number) * ((arrived[i] as number) - now)
    return kept * sample - base * now - to.alpha * scale * slope
  })
}

/** Solves Σ ρ_m · r_m^(k−1) = b_k; with one point, half of it is of second order already. */
function weightsOf(points: readonly number[], change: number, scale: number): number[] {
  if (points.length <= 1) return points.map(() => 0.5)
  const rows: number[][] = []
  let phi = Math.expm1(change) / change - 1
  let factorial = 1
  for (let k = 0; k < points.length; k++) {
    rows.push([...points.map((point) => point ** k), (phi * factorial) / scale])
    factorial *= k + 2
    phi = phi / change - 1 / factorial
  }
  return solve(rows)
}

/** Gauss and Jordan with pivots, for systems of at most three equations. */
function solve(rows: number[][]): number[] {
  const count = rows.length
  const at = (row: number, column: number) => rows[row]?.[column] as number
  for (let column = 0; column < count; column++) {
    let pivot = column
    for (let row = column + 1; row < count; row++) {
      if (Math.abs(at(row, column)) > Math.abs(at(pivot, column))) pivot = row
    }
    const chosen = (rows[pivot] as number[]).map((value) => value / at(pivot, column))
    rows[pivot] = rows[column] as number[]
    rows[column] = chosen
    for (let row = 0; row < count; row++) {
      if (row === column) continue
      const factor = at(row, column)
      rows[row] = (rows[row] as number[]).map((value, i) => value - factor * (chosen[i] as number))
    }
  }
  return rows.map((row) => row[count] as number)
}
