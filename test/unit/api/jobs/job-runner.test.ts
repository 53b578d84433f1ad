import { Readable } from 'node:stream'

import { describe, expect, it } from 'vitest'

import type { EventLog } from '#api/jobs/event-log.ts'
import { contextOf } from '#api/jobs/job.ts'
import { JobRunner } from '#api/jobs/job-runner.ts'
import type { JobEnding, JobStore } from '#api/jobs/job-store.ts'
import { createLogger } from '#shared/logger.ts'
import { packContent } from '#shared/stored-content.ts'

const EVENT_BYTES = 4 * 1024 * 1024

/** Runs one job whose answer is a stream without an end; answers how it ended. */
async function runEndless() {
  const events = { sent: 0, isLeft: false }
  const endings: JobEnding[] = []
  const request = await packContent('{}', undefined, contextOf('job_1'))
  const claims = [[{ id: 'job_1', attempts: 1, request }]]
  async function* endless() {
    try {
      for (;;) {
        events.sent += 1
        yield `data: ${'x'.repeat(EVENT_BYTES)}\n\n`
      }
    } finally {
      events.isLeft = true
    }
  }
  const runner = new JobRunner({
    jobs: {
      settle: async () => {},
      claim: async () => claims.shift() ?? [],
      finish: async (_id: string, _leaseId: string, ending: JobEnding) => endings.push(ending),
    } as unknown as JobStore,
    events: {
      size: async () => 0,
      append: async () => {},
      end: async () => {},
    } as unknown as EventLog,
    send: async () => ({
      status: 200,
      headers: { 'content-type': 'text/event-stream' },
      body: Readable.from(endless()),
    }),
    log: createLogger({ level: 'silent' }),
  })
  await expect.poll(() => endings.length).toBe(1)
  await runner.stop(0)
  return { ending: endings[0], events }
}

describe('a background job', () => {
  it('fails when its events are more than a result may have, and leaves them', async () => {
    const { ending, events } = await runEndless()
    expect(ending).toMatchObject({ state: 'failed', error: { code: 'result_too_large' } })
    expect(events.isLeft).toBe(true)
    expect(events.sent).toBeLessThan(32)
  }, 20_000)
})
