import { setTimeout as sleep } from 'node:timers/promises'

import { metric } from './metrics.ts'

/** A scenario with arrivals that do not wait for answers. */
export interface ArrivalScenario {
  readonly executor: string
  readonly exec: string
  readonly timeUnit: string
  readonly startRate: number
  readonly maxVUs: number
  readonly stages: readonly { readonly target: number; readonly duration: string }[]
}

const TICK_MS = 5
const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** `90s`, `2m` in milliseconds. */
export function durationMs(text: string): number {
  const [, number, unit = ''] = /^(\d+)(ms|s|m|h)$/.exec(text) ?? []
  const factor = UNITS_MS[unit]
  if (number === undefined || factor === undefined) throw new Error(`no duration: ${text}`)
  return Number(number) * factor
}

/** How many have arrived until a moment, the rate going evenly from one target to the next. */
export function arrivedUntil(scenario: ArrivalScenario, elapsedMs: number): number {
  const unitMs = durationMs(scenario.timeUnit)
  let [arrived, rate, leftMs] = [0, scenario.startRate, elapsedMs]
  for (const { target, duration } of scenario.stages) {
    const stageMs = durationMs(duration)
    const spentMs = Math.min(stageMs, leftMs)
    const reached = rate + ((target - rate) * spentMs) / stageMs
    arrived += (((rate + reached) / 2) * spentMs) / unitMs
    leftMs -= spentMs
    if (leftMs <= 0) break
    rate = target
  }
  return Math.floor(arrived)
}

/** Runs a scenario to its end, and waits for requests in flight. */
export async function runArrivals(
  scenario: ArrivalScenario,
  run: (iteration: number) => Promise<void>,
): Promise<void> {
  if (scenario.executor !== 'ramping-arrival-rate') throw new Error(`no ${scenario.executor} here`)
  const lengthMs = scenario.stages.reduce((sum, { duration }) => sum + durationMs(duration), 0)
  const open = new Set<Promise<void>>()
  const begunMs = performance.now()
  let arrived = 0
  let elapsedMs = 0
  do {
    // A turn that comes late starts all that has arrived meanwhile, the last one too.
    elapsedMs = Math.min(performance.now() - begunMs, lengthMs)
    for (const wanted = arrivedUntil(scenario, elapsedMs); arrived < wanted; arrived += 1) {
      if (open.size >= scenario.maxVUs) {
        metric('dropped_iterations', 'counter').add(1)
        continue
      }
      const iteration: Promise<void> = run(arrived)
        .catch(() => metric('failed_iterations', 'counter').add(1))
        .finally(() => open.delete(iteration))
      open.add(iteration)
    }
    await sleep(TICK_MS)
  } while (elapsedMs < lengthMs)
  await Promise.all(open)
}
