import { writeFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

import { type ArrivalScenario, runArrivals } from './support/k6/arrivals.ts'
import { checkCounts } from './support/k6/k6.ts'
import { allMetrics, metric } from './support/k6/metrics.ts'
import { thresholdsOf } from './support/k6/thresholds.ts'

// Runs a scenario file of k6 where k6 is not at hand, by the same settings, thresholds and exit
// status:
//
//   SCENARIO=smoke BASE_URL=http://localhost:8081 API_KEY=mr-… node bench/load.ts [deploy/k6/millrace.js]
//
// It measures what k6 cannot: the time to the first token of a stream, and between its tokens.

const SHIMS = join(import.meta.dirname, 'support/k6')
const THRESHOLDS_CROSSED = 99 // As k6 exits.

interface Scenarios {
  readonly options: {
    readonly scenarios: Readonly<Record<string, ArrivalScenario>>
    readonly thresholds: Parameters<typeof thresholdsOf>[0]
  }
  handleSummary?(data: object): Readonly<Record<string, string>>
  readonly [name: string]: unknown
}

registerHooks({
  resolve(specifier, context, next) {
    const [, name] = /^k6(?:\/(\w+))?$/.exec(specifier) ?? [undefined, undefined]
    if (!/^k6(\/|$)/.test(specifier)) return next(specifier, context)
    return { url: pathToFileURL(join(SHIMS, `${name ?? 'k6'}.ts`)).href, shortCircuit: true }
  },
})

async function main(): Promise<number> {
  const file = resolve(process.argv[2] ?? join(import.meta.dirname, '../deploy/k6/millrace.js'))
  Object.assign(globalThis, { __ENV: process.env, __ITER: 0, __VU: 1 })
  const scenarios = (await import(pathToFileURL(file).href)) as Scenarios
  const { options } = scenarios
  for (const name of Object.keys(options.thresholds)) declare(name)
  await Promise.all(
    Object.values(options.scenarios).map((scenario) => {
      const run = scenarios[scenario.exec] as () => Promise<void>
      return runArrivals(scenario, (iteration) => {
        // Read before the first `await`, so each iteration reads its own.
        Object.assign(globalThis, { __ITER: iteration, __VU: 1 + (iteration % 100) })
        return run()
      })
    }),
  )
  return conclude(scenarios)
}

/** A metric of which nothing was seen has figures all the same. */
function declare(name: string): void {
  if (name === 'dropped_iterations') metric(name, 'counter')
  else if (name === 'checks' || name === 'http_req_failed') metric(name, 'rate')
}

function conclude({ options, handleSummary }: Scenarios): number {
  const judged = thresholdsOf(options.thresholds, allMetrics())
  const metrics = Object.fromEntries(
    [...allMetrics()].map(([name, { kind, values }]) => {
      const thresholds = judged.get(name)
      return [name, { type: kind, values, ...(thresholds !== undefined && { thresholds }) }]
    }),
  )
  const data = { metrics, root_group: { checks: checkCounts() } }
  const { stdout = '', ...files } = handleSummary?.(data) ?? {}
  process.stdout.write(stdout)
  for (const [path, text] of Object.entries(files)) writeFileSync(path, text)
  for (const name of ['time_to_first_token_ms', 'inter_token_ms']) {
    const figures = metrics[name]?.values
    if (figures === undefined) continue
    const [median, last] = [figures.med ?? 0, figures['p(99)'] ?? 0]
    process.stdout.write(`${name}: p50 ${median.toFixed(1)}, p99 ${last.toFixed(1)}\n`)
  }
  const isCrossed = [...judged.values()].some((all) => Object.values(all).some(({ ok }) => !ok))
  return isCrossed ? THRESHOLDS_CROSSED : 0
}

process.exitCode = await main()
