import { describe, expect, it } from 'vitest'

import { BackgroundJobs } from '#api/jobs/background-jobs.ts'
import type { EventLog } from '#api/jobs/event-log.ts'
import type { JobStore, JobSummary } from '#api/jobs/job-store.ts'
import { systemClock } from '#shared/clock.ts'
import { packContent } from '#shared/stored-content.ts'
import { Turns } from '#shared/turns.ts'

/** Calls that count how many of them run at a time. */
function counted() {
  const counts = { running: 0, most: 0, calls: 0 }
  const call = async () => {
    counts.calls += 1
    counts.running += 1
    counts.most = Math.max(counts.most, counts.running)
    await new Promise(setImmediate)
    counts.running -= 1
  }
  return { counts, call }
}

describe('turns', () => {
  it('run a limited number of calls at a time, in order, also behind one that fails', async () => {
    const { counts, call } = counted()
    const turns = new Turns(2)
    const order: number[] = []
    const calls = Array.from({ length: 9 }, (_, index) =>
      turns.run(async () => {
        order.push(index)
        await call()
        if (index === 3) throw new Error('failed')
      }),
    )
    const results = await Promise.allSettled(calls)
    expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(1)
    expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8])
    expect(counts.most).toBe(2)
    await turns.run(call)
    expect(counts.calls).toBe(10)
  })
})

describe('the event streams of jobs that wait', () => {
  it('do not block the connections of the database for other requests', async () => {
    const { counts, call } = counted()
    const find = async () => {
      await call()
      return { state: 'queued' } as JobSummary
    }
    const background = new BackgroundJobs({
      jobs: { find } as unknown as JobStore,
      events: { read: async () => ({ events: [], isEnded: false }) } as unknown as EventLog,
      clock: systemClock,
      openJobsMax: 1,
      openJobBytesMax: 1,
      wake: () => {},
    })
    const left = new AbortController()
    const job = { id: 'job_1', organizationId: 'org-one' } as JobSummary
    const reader = {
      organizationId: 'org-one',
      reservesMemory: true,
      reserve: async () => undefined,
    } as const
    const streams = Array.from({ length: 50 }, () =>
      Array.fromAsync(background.eventsOf({ reader, job, from: 0, signal: left.signal })),
    )
    await expect.poll(() => counts.calls).toBeGreaterThanOrEqual(50)
    left.abort()
    await Promise.all(streams)
    expect(counts.most).toBe(2)
  })

  it('read the stored events of an ended job once memory is reserved for them', async () => {
    const order: string[] = []
    const background = new BackgroundJobs({
      jobs: {
        find: async () => ({ id: 'job_1', state: 'completed' }) as JobSummary,
        async readResult() {
          order.push('read')
          return packContent('data: 1\n\ndata: 2\n\n', undefined, '')
        },
      } as unknown as JobStore,
      events: { read: async () => ({ events: [], isEnded: false }) } as unknown as EventLog,
      clock: systemClock,
      openJobsMax: 1,
      openJobBytesMax: 1,
      wake: () => {},
    })
    const reserve = async () => {
      order.push('reserve')
      return { shrinkTo: (bytes: number) => order.push(`keep ${bytes}`), end: () => {} }
    }
    const reader = { organizationId: 'org-one', reservesMemory: true, reserve } as const
    const job = { id: 'job_1', organizationId: 'org-one' } as JobSummary
    const { signal } = new AbortController()
    const events = await Array.fromAsync(background.eventsOf({ reader, job, from: 1, signal }))
    expect(events).toEqual(['data: 2\n\n'])
    expect(order).toEqual(['reserve', 'read', 'keep 9'])
  })
})
