import { Readable } from 'node:stream'

import { describe, expect, it } from 'vitest'

import type { EventLog } from '#api/jobs/event-log.ts'
import { contextOf } from '#api/jobs/job.ts'
import { JobRunner, type SendStored } from '#api/jobs/job-runner.ts'
import type { JobEnding, JobStore } from '#api/jobs/job-store.ts'
import type { SlotRoom } from '#api/v1/fair-slots.ts'
import { createLogger } from '#shared/logger.ts'
import { packContent } from '#shared/stored-content.ts'

const EVENT_BYTES = 4 * 1024 * 1024

/** Runs one job with this answer; returns how it ended. */
async function runOne(answer: Awaited<ReturnType<SendStored>>): Promise<JobEnding | undefined> {
  const endings: JobEnding[] = []
  let isOver = false
  const request = await packContent('{}', undefined, contextOf('job_1'))
  const claims = [[{ id: 'job_1', attempts: 1, request }]]
  const runner = new JobRunner({
    jobs: {
      settle: async () => {},
      claim: async () => claims.shift() ?? [],
      finish: async (_id: string, _leaseId: string, ending: JobEnding) => endings.push(ending),
    } as unknown as JobStore,
    events: {
      size: async () => 0,
      append: async () => {},
      end: async () => {
        isOver = true
      },
    } as unknown as EventLog,
    send: async () => answer,
    log: createLogger({ level: 'silent' }),
  })
  await expect.poll(() => isOver).toBe(true)
  await runner.stop(0)
  return endings[0]
}

/** Runs one job whose answer is a stream without an end; returns how it ended. */
async function runEndless() {
  const events = { sent: 0, isLeft: false }
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
  const headers = { 'content-type': 'text/event-stream' }
  const ending = await runOne({ status: 200, headers, body: Readable.from(endless()) })
  return { ending, events }
}

/** A runner whose jobs end when the test does; `onStart` is called with each as it starts. */
async function openRunner(onStart: (run: Parameters<SendStored>[2]) => void = () => {}) {
  const request = await packContent('{}', undefined, contextOf('job_1'))
  const over = new AbortController()
  const due: { readonly id: string; readonly organizationId: string }[] = []
  const started: string[] = []
  let released = 0
  let idleLooks = 0
  const runner = new JobRunner({
    jobs: {
      settle: async () => {},
      claim: async (_leaseId: string, _seconds: number, room: SlotRoom) => {
        const taken = new Map(Object.entries(room.inFlight))
        const claimed = due.filter(({ organizationId: id }) => {
          const count = (taken.get(id) ?? 0) + 1
          if (count <= room.perOrganizationMax) taken.set(id, count)
          return count <= room.perOrganizationMax
        })
        const jobs = claimed.slice(0, room.limit)
        for (const job of jobs) due.splice(due.indexOf(job), 1)
        idleLooks = jobs.length === 0 ? idleLooks + 1 : 0
        return jobs.map((job) => ({ ...job, attempts: 1, request }))
      },
      release: async () => {
        released += 1
      },
      releaseAll: async () => {},
    } as unknown as JobStore,
    events: {} as EventLog,
    send: async ({ id }, _body, run) => {
      started.push(id)
      try {
        onStart(run)
      } catch {
        return { status: 503, headers: {}, body: Readable.from([Buffer.from('{"error":{}}')]) }
      }
      return new Promise((_resolve, reject) => {
        over.signal.addEventListener('abort', () => reject(new Error('over')))
      })
    },
    log: createLogger({ level: 'silent' }),
  })
  return {
    started,
    released: () => released,
    add(count: number, organizationId: string) {
      const name = (at: number) => `${organizationId}_${started.length + due.length + at}`
      const jobs = Array.from({ length: count }, (_, at) => ({ id: name(at), organizationId }))
      due.push(...jobs)
      runner.wake()
    },
    /** Waits until the process leaves the jobs that are due. */
    idle: () => {
      idleLooks = 0
      return expect
        .poll(() => {
          runner.wake()
          return idleLooks
        })
        .toBeGreaterThan(1)
    },
    async stop() {
      over.abort()
      await runner.stop(0)
    },
  }
}

describe('the background jobs of a process', () => {
  it('leave room for those of other organizations', async () => {
    const { started, add, idle, stop } = await openRunner()
    add(64, 'org-one')
    await idle()
    expect(started).toHaveLength(48)
    add(2, 'org-two')
    await expect.poll(() => started.length).toBe(49)
    await idle()
    expect(started).toHaveLength(49)
    await stop()
  }, 30_000)

  it('release their slots when they only wait for workers', async () => {
    const { started, add, stop } = await openRunner(({ leaveSlot }) => leaveSlot())
    for (let at = 0; at < 25; at += 1) add(3, `org-tuning-${at}`)
    await expect.poll(() => started.length).toBe(75)
    add(60, 'org-one')
    await expect.poll(() => started.length).toBe(135)
    await stop()
  }, 30_000)

  it('are retried later if too many wait for workers', async () => {
    const { started, released, add, stop } = await openRunner(({ leaveSlot }) => leaveSlot())
    add(1030, 'org-one')
    await expect.poll(() => started.length).toBe(1030)
    await expect.poll(() => released()).toBe(6)
    await stop()
  }, 30_000)
})

describe('a background job', () => {
  it('fails when its events exceed the limit of a result, keeps them and marks their end', async () => {
    const { ending, events } = await runEndless()
    expect(ending).toMatchObject({ state: 'failed', error: { code: 'result_too_large' } })
    expect(events.isLeft).toBe(true)
    expect(events.sent).toBeLessThan(32)
  }, 20_000)

  it.each([
    [200, { state: 'completed', status: 200 }],
    [400, { state: 'failed', status: 400, error: { code: 'bad', message: 'No.' } }],
  ])('that is answered with %i ends accordingly', async (status, ending) => {
    const body = Readable.from([Buffer.from('{"error":{"code":"bad","message":"No."}}')])
    expect(await runOne({ status, headers: {}, body })).toMatchObject(ending)
  })
})
