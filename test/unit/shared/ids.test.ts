import { expect, it } from 'vitest'

import { randomId, timeOrderedId } from '#shared/ids.ts'

it('makes identifiers of the wanted length from letters and digits', () => {
  expect(randomId('cmpl-')).toMatch(/^cmpl-[A-Za-z0-9]{24}$/)
  expect(randomId('chatcmpl-', 29)).toMatch(/^chatcmpl-[A-Za-z0-9]{29}$/)
})

it('does not repeat itself in 100,000 identifiers', () => {
  const ids = new Set(Array.from({ length: 100_000 }, () => randomId('')))
  expect(ids.size).toBe(100_000)
})

it('sorts time-ordered identifiers by their time', () => {
  const times = [1, 1_700_000_000_000, 1_800_000_000_000]
  const ids = times.map((time) => timeOrderedId('act_', time))
  expect([...ids].sort()).toEqual(ids)
})
