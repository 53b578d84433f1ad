import { describe, expect, it } from 'vitest'

import { firingTimes, goOn, pendingMsOf } from '#test/support/alerting.ts'
import type { Snapshot } from '#test/support/promql.ts'

const at = (seconds: number, values: Readonly<Record<string, number>>): Snapshot => ({
  atMs: seconds * 1000,
  samples: Object.entries(values).map(([job, value]) => ({ name: 'up', labels: { job }, value })),
})
const RULE = { expr: 'up == 0', for: '1m' }

describe('a rule with a time', () => {
  it.each([
    ['holds on', [0, 0, 0, 0, 0, 0], [60, 75]],
    ['holds not at first', [1, 0, 0, 0, 0, 0], [75]],
    ['holds with a gap', [0, 0, 0, 1, 0, 0], []],
    ['never holds', [1, 1, 1, 1, 1, 1], []],
  ])('whose expression %s (%j) fires at %j', (_name, values, seconds) => {
    const snapshots = values.map((value, index) => at(index * 15, { api: value }))
    expect(firingTimes(RULE, snapshots)).toEqual(seconds.map((one) => one * 1000))
  })

  it('counts the time of each series for itself', () => {
    const values = [
      { a: 0, b: 1 },
      { a: 0, b: 0 },
      { a: 1, b: 0 },
      { a: 1, b: 0 },
    ]
    const snapshots = values.map((value, index) => at(index * 30, value))
    expect(firingTimes(RULE, snapshots)).toEqual([90_000])
  })

  it('fires at once without one, and is refused with an invalid one', () => {
    expect(firingTimes({ expr: 'up == 0' }, [at(0, { a: 0 })])).toEqual([0])
    expect(pendingMsOf({ expr: '', for: '30s' })).toBe(30_000)
    expect(() => pendingMsOf({ expr: '', for: 'soon' })).toThrow('no duration')
  })
})

it('continues a series that grows steadily, and leaves the rest unchanged', () => {
  const sample = (name: string, value: number) => ({ name, labels: {}, value })
  const found = goOn(
    [
      { atMs: 0, samples: [sample('a_total', 1), sample('g', 5)] },
      { atMs: 1000, samples: [sample('a_total', 4), sample('g', 7), sample('new_count', 2)] },
    ],
    { steps: 2, stepMs: 15_000 },
  )
  expect(found.map(({ atMs }) => atMs)).toEqual([16_000, 31_000])
  expect(found.map(({ samples }) => samples.map(({ value }) => value))).toEqual([
    [7, 7, 4],
    [10, 7, 6],
  ])
})
