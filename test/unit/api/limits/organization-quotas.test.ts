import { expect, it, vi } from 'vitest'

import { rememberQuotas } from '#api/limits/organization-quotas.ts'
import type { Clock } from '#shared/clock.ts'
import { NO_QUOTAS } from '#shared/db/schema/quotas.ts'
import { createLogger } from '#shared/logger.ts'

const log = createLogger({ level: 'silent' })

function openScene() {
  let nowMs = 0
  const clock = { monotonic: () => nowMs } as Clock
  const find = vi.fn(async () => ({ ...NO_QUOTAS, requestsPerDay: find.mock.calls.length }))
  const quotasOf = rememberQuotas({ find, clock, log })
  const requestsPerDay = async () => (await quotasOf('org-a')).requestsPerDay
  const wait = (ms: number) => {
    nowMs += ms
  }
  return { find, requestsPerDay, wait }
}

it('reads the quotas of an organization once a second, without a wait', async () => {
  const { find, requestsPerDay, wait } = openScene()
  expect(await Promise.all([requestsPerDay(), requestsPerDay()])).toEqual([1, 1])
  wait(1001)
  expect(await Promise.all([requestsPerDay(), requestsPerDay()])).toEqual([1, 1])
  expect(find).toHaveBeenCalledTimes(2)
  expect(await requestsPerDay()).toBe(2)
})

it('waits for quotas that were not read for a minute', async () => {
  const { requestsPerDay, wait } = openScene()
  expect(await requestsPerDay()).toBe(1)
  wait(60_001)
  expect(await requestsPerDay()).toBe(2)
})

it('keeps the known quotas while the database is away, and has none without', async () => {
  const { find, requestsPerDay, wait } = openScene()
  const fail = async () => {
    throw new Error('no database')
  }
  find.mockImplementationOnce(fail)
  expect(await requestsPerDay()).toBeNull()
  wait(60_001)
  expect(await requestsPerDay()).toBe(2)
  find.mockImplementationOnce(fail)
  wait(60_001)
  expect(await requestsPerDay()).toBe(2)
})
