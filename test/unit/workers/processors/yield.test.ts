import { expect, it } from 'vitest'

import type { Clock } from '#shared/clock.ts'
import { yieldToEventLoop } from '#workers/processors/processor-row.ts'

it.each([
  [9, false],
  [10, true],
])('after %i ms of a synchronous loop the event loop runs: %j', async (elapsedMs, runs) => {
  let nowMs = 0
  const yieldNow = yieldToEventLoop({ monotonic: () => nowMs } as Clock)
  nowMs = elapsedMs
  let hasRun = false
  setImmediate(() => (hasRun = true))
  await yieldNow()
  expect(hasRun).toBe(runs)
  // The next turn begins now.
  setImmediate(() => (hasRun = false))
  await yieldNow()
  expect(hasRun).toBe(runs)
})
