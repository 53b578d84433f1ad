import { describe, expect, it } from 'vitest'

import { evaluate, type Snapshot } from '#test/support/promql.ts'

const at = (seconds: number, rows: Readonly<Record<string, number>>): Snapshot => ({
  atMs: seconds * 1000,
  samples: Object.entries(rows).map(([series, value]) => {
    const [name = '', labels = ''] = series.split('|')
    const pairs = labels.split(',').filter((pair) => pair !== '')
    return { name, labels: Object.fromEntries(pairs.map((pair) => pair.split('='))), value }
  }),
})

// Expected values follow from the definitions at prometheus.io/docs/prometheus/latest/querying/.
const SNAPSHOTS = [
  at(0, { 'c|a=1,b=x': 10, 'c|a=2,b=x': 5, 'h|le=1': 0, 'h|le=2': 0, 'h|le=+Inf': 0, g: 7 }),
  at(10, {
    'c|a=1,b=x': 30,
    // It fell: the process began anew.
    'c|a=2,b=x': 4,
    'c|a=3,b=y': 9,
    'h|le=1': 50,
    'h|le=2': 100,
    'h|le=+Inf': 100,
    g: 8,
  }),
]

const values = (query: string) => evaluate(query, SNAPSHOTS).map(({ value }) => value)

describe('the evaluator of queries', () => {
  it.each([
    ['g', [8]],
    ['c{a="1"}', [30]],
    ['c{a!="1"}', [4, 9]],
    ['c{a=~"1|2"}', [30, 4]],
    ['c{a!~"1|2"}', [9]],
    ['nothing', []],
    // A series that was not there before has no growth.
    ['increase(c[1m])', [20, 4]],
    ['rate(c[1m])', [2, 0.4]],
    // Outside the range there is only one sample.
    ['rate(c[5s])', []],
    ['sum(rate(c[1m]))', [2.4]],
    ['sum by (b) (c)', [34, 9]],
    ['max by (b) (c)', [30, 9]],
    ['min(c)', [4]],
    ['avg by (b) (c)', [17, 9]],
    ['count(c)', [3]],
    ['sum(c) / sum(g)', [43 / 8]],
    ['g * 2 + 1', [17]],
    ['g > 7', [8]],
    ['g > 8', []],
    ['g == 8 and g > 1', [8]],
    ['g == 8 and sum by (a) (c)', []],
    ['sum by (b) (c) > 10', [34]],
    ['histogram_quantile(0.5, h)', [1]],
    ['histogram_quantile(0.75, h)', [1.5]],
    ['histogram_quantile(0.95, sum by (le) (rate(h[1m]))) > 1.8', [1.9]],
  ])('answers %s', (query, expected) => {
    const found = values(query)
    expect(found).toHaveLength(expected.length)
    for (const [index, value] of found.entries()) expect(value).toBeCloseTo(expected[index] ?? 0)
  })

  it.each(['sum(', 'topk(3, c)', 'c{a}', 'rate(c)', 'c offset 5m', 'c[5m]x'])(
    'refuses %s rather than guess',
    (query) => expect(() => values(query)).toThrow(),
  )
})
