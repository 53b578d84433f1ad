import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { firingTimes, goOn, pendingMsOf } from '#test/support/alerting.ts'
import { evaluate, type Snapshot } from '#test/support/promql.ts'

import { FAULTS } from './faults.ts'
import { readAlerts, readPanelQueries, readRunbooks } from './monitoring.ts'
import { makeTraffic, startWatchedStack, type WatchedStack } from './stack.ts'

const PATIENCE_MS = 60_000
/** How often the rules are evaluated. */
const STEP_MS = 15_000
const TIMEOUT_MS = 240_000

describe('the monitoring of a running installation', () => {
  const alerts = readAlerts()
  let stack: WatchedStack
  let calm: Snapshot[]

  beforeAll(async () => {
    stack = await startWatchedStack()
    calm = []
    // A rate needs a series before and after.
    for (let round = 0; round < 2; round += 1) {
      await makeTraffic(stack)
      calm.push(await stack.scrape())
    }
  })

  afterAll(() => stack?.stop())

  it.each(readPanelQueries())('shows something for $title: $expression', ({ expression }) => {
    const found = evaluate(expression, calm)
    expect(found.filter(({ value }) => Number.isFinite(value))).not.toEqual([])
  })

  it('has a panel for every metric of ours that is scraped', () => {
    const text = readPanelQueries()
      .map(({ expression }) => expression)
      .join('\n')
    const names = calm
      .flatMap(({ samples }) => samples.map(({ name }) => name.replace(/_(bucket|sum|count)$/, '')))
      .filter((name) => /^(millrace|gen_ai|http|db)_/.test(name))
    const unseen = [...new Set(names)].filter((name) => !text.includes(name))
    expect(unseen.sort()).toEqual([
      // Derived from the share of slots in use and from the wait in the queue.
      'millrace_worker_jobs_waiting',
      'millrace_worker_model_ready',
      'millrace_worker_slots_offered',
    ])
  })

  it('counts no request as active after its answer', async () => {
    const active = async () =>
      (await stack.scrape()).samples
        .filter(({ name }) => name === 'http_server_active_requests')
        .map(({ value }) => value)
    expect((await active()).length).toBeGreaterThan(0)
    await expect.poll(async () => (await active()).filter((value) => value !== 0)).toEqual([])
  })

  it('fires no alert while all is well', () => {
    const firing = alerts.filter(({ expr }) => evaluate(expr, calm).length > 0)
    expect(firing.map(({ alert }) => alert)).toEqual([])
  })

  it('has a fault and a runbook for every alert, with instructions', () => {
    const names = alerts.map(({ alert }) => alert)
    expect(names.toSorted()).toEqual(Object.keys(FAULTS).sort())
    expect(readRunbooks().sort()).toEqual(names.toSorted())
    for (const { annotations, labels } of alerts) {
      expect(annotations.summary).not.toBe('')
      expect(annotations.description).not.toBe('')
      expect(['critical', 'warning']).toContain(labels.severity)
    }
  })

  it.each(Object.keys(FAULTS))(
    'lets %s fire under its fault',
    { timeout: TIMEOUT_MS },
    async (name) => {
      const rule = alerts.find(({ alert }) => alert === name) ?? { expr: '' }
      const { expr } = rule
      const fault = FAULTS[name]?.() ?? {}
      const snapshots = [await stack.scrape()]
      const until = performance.now() + PATIENCE_MS
      try {
        await fault.begin?.(stack)
        let firing: ReturnType<typeof evaluate> = []
        while (firing.length === 0 && performance.now() < until) {
          await fault.goOn?.(stack)
          snapshots.push(await stack.scrape())
          firing = evaluate(expr, snapshots)
        }
        expect(firing.length).toBeGreaterThan(0)
        // It fires once it has held for its time, and not before.
        const pendingMs = pendingMsOf(rule)
        const beganMs = snapshots.at(-1)?.atMs ?? 0
        const steps = pendingMs / STEP_MS + 2
        const firedAt = firingTimes(rule, [
          ...snapshots,
          ...goOn(snapshots, { steps, stepMs: STEP_MS }),
        ])
        expect((firedAt[0] ?? 0) - beganMs).toBeGreaterThanOrEqual(pendingMs)
        expect((firedAt[0] ?? 0) - beganMs).toBeLessThanOrEqual(pendingMs + 2 * STEP_MS)
      } finally {
        await fault.end?.(stack)
      }
    },
  )
})
