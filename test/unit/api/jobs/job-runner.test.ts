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

/** Runs endless jobs of one organization, of which enough are due; answers its busy ones. */
async function runEndlessly() {
  const request = await packContent('{}', undefined, contextOf('job_1'))
  const over = new AbortController()
  let running = 0
  let busy: readonly string[] = []
  const runner = new JobRunner({
    jobs: {
      settle: async () => {},
      claim: async (_leaseId: string, limit: number, _seconds: number, no: readonly string[]) => {
        busy = no
        if (busy.includes('org-one')) return []
        const ids = Array.from({ length: Math.min(limit, 4) }, (_, index) => running + index)
        running += ids.length
        return ids.map((id) => ({ id: `job_${id}`, organizationId: 'org-one', request }))
      },
      releaseAll: async () => {},
    } as unknown as JobStore,
    events: {} as EventLog,
    send: async () =>
      new Promise((_resolve, reject) => {
        over.signal.addEventListener('abort', () => reject(new Error('over')))
      }),
    log: createLogger({ level: 'silent' }),
  })
  await expect
    .poll(
      () => {
        runner.wake()
        return busy
      },
      { timeout: 10_000 },
    )
    .toEqual(['org-one'])
  over.abort()
  await runner.stop(0)
  return running
}

describe('the background jobs of a process', () => {
  it('leave room for those of other organizations', async () => {
    expect(await runEndlessly()).toBe(48)
  }, 20_000)
})

describe('a background job', () => {
  it('fails when its events are more than a result may have, and leaves them', async () => {
    const { ending, events } = await runEndless()
    expect(ending).toMatchObject({ state: 'failed', error: { code: 'result_too_large' } })
    expect(events.isLeft).toBe(true)
    expect(events.sent).toBeLessThan(32)
  }, 20_000)
})
