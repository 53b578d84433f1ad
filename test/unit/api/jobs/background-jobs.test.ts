import { expect, it } from 'vitest'

import { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import type { EventLog } from '#api/jobs/event-log.ts'
import type { JobStore } from '#api/jobs/job-store.ts'
import { systemClock } from '#shared/clock.ts'

it.for([
  ['full', 'job_limit_exceeded', '7 unfinished'],
  ['too large', 'job_bytes_limit_exceeded', '900 bytes'],
] as const)('a job that is %s is refused with 429 and %s', async ([reason, code, limit]) => {
  const background = new BackgroundJobs({
    jobs: { create: async () => reason } as unknown as JobStore,
    events: {} as EventLog,
    clock: systemClock,
    wake: () => {},
    openJobsMax: 7,
    openJobBytesMax: 900,
  })
  const owner = { organizationId: 'org-one', modelIds: null }
  const job = {
    id: 'job_1',
    endpoint: '/v1/completions',
    createdAtMs: systemClock.now(),
    body: Buffer.from('{}'),
    model: 'x',
    contentType: 'application/json',
  }
  const refused = await background.create(owner, job).catch((error: unknown) => error)
  expect(refused).toMatchObject({ status: 429, code, shouldRetry: false })
  expect(String(refused)).toContain(limit)
})
