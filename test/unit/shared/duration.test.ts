import { expect, it } from 'vitest'

import { formatGoDuration, parseDurationMs } from '#shared/clock.ts'

it.each([
  ['900', 900_000],
  ['1.5', 1500],
  ['900s', 900_000],
  ['15m', 900_000],
  ['1h30m', 5_400_000],
  ['250ms', 250],
  ['10us', 0.01],
  ['24h', 86_400_000],
  ['7d', 604_800_000],
  [' 5s ', 5000],
  ['', undefined],
  ['none', undefined],
  ['5 s', undefined],
  ['-5s', undefined],
  ['5x', undefined],
  ['1h 30m', undefined],
  ['s', undefined],
])('reads the duration %j as %j ms', (text, expected) => {
  expect(parseDurationMs(text)).toBe(expected)
})

it.each([
  [0, '0ms'],
  [120, '120ms'],
  [8640, '8.64s'],
  [360_000, '6m0s'],
  [86_400, '1m26.4s'],
  [3_600_000, '1h0m0s'],
])('writes %d ms as %s', (ms, expected) => {
  expect(formatGoDuration(ms)).toBe(expected)
})
