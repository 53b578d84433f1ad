import { describe, expect, it } from 'vitest'

import { capacityOf, overloaded, projectedWaitMs, unavailableQueues } from '#api/jobs/admission.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'
import { TOY } from '#test/support/toy-worker.ts'

const QUEUE: ServedQueue = {
  kind: 'completion',
  modelId: 'toy',
  isReady: true,
  slots: 4,
  active: 0,
  waiting: 0,
  jobsPerSecond: 0,
  tokensPerSecond: 0,
  cacheUse: 0,
}

const heartbeatOf = (changes: Partial<ServedQueue>, isDraining = false): WorkerHeartbeat => ({
  workerId: 'w',
  version: '0',
  nodeVersion: '',
  pid: 1,
  hostname: '',
  startedAtMs: 0,
  isDraining,
  queues: [{ ...QUEUE, ...changes }],
})

describe('the projected wait', () => {
  it.each<[string, number, readonly WorkerHeartbeat[], number | undefined]>([
    ['is none while slots are free', 3, [heartbeatOf({ jobMs: 1000 })], 0],
    ['is unknown before any job has ended', 50, [heartbeatOf({ active: 4 })], undefined],
    ['follows from slots and durations', 7, [heartbeatOf({ active: 4, jobMs: 2000 })], 4000],
    ['counts jobs that run beyond the slots', 7, [heartbeatOf({ active: 8, jobMs: 2000 })], 2000],
    // One job ended in the last ten seconds, because there was but one.
    [
      'is not misled by a pause',
      39,
      [heartbeatOf({ active: 4, jobMs: 100, jobsPerSecond: 0.1 })],
      1000,
    ],
    [
      'counts every worker',
      7,
      [heartbeatOf({ active: 4, jobMs: 2000 }), heartbeatOf({ active: 4, jobMs: 2000 })],
      2000,
    ],
    [
      'counts no worker that drains',
      7,
      [heartbeatOf({ active: 4, jobMs: 2000 }), heartbeatOf({ jobMs: 1 }, true)],
      4000,
    ],
    [
      'counts none that is not ready',
      7,
      [heartbeatOf({ active: 4, jobMs: 2000 }), heartbeatOf({ jobMs: 1, isReady: false })],
      4000,
    ],
    [
      'counts none of another model',
      7,
      [heartbeatOf({ active: 4, jobMs: 2000 }), heartbeatOf({ jobMs: 1, modelId: 'x' })],
      4000,
    ],
  ])('%s', (_, depth, workers, expected) => {
    expect(projectedWaitMs(depth, capacityOf(workers, TOY))).toBe(expected)
  })
})

describe('a queue', () => {
  const failing = { isReady: false, isFailing: true } as const
  it.each<[string, readonly WorkerHeartbeat[], boolean]>([
    ['is unavailable when all its workers fail to load its model', [heartbeatOf(failing)], true],
    [
      'is not while one still loads it',
      [heartbeatOf(failing), heartbeatOf({ isReady: false })],
      false,
    ],
    ['is not while one serves it', [heartbeatOf(failing), heartbeatOf({})], false],
    ['is when the one that serves it drains', [heartbeatOf(failing), heartbeatOf({}, true)], true],
    ['is not without any worker, since one may be started for it', [], false],
  ])('%s', (_, workers, expected) => {
    expect(unavailableQueues(workers).has('completion.toy')).toBe(expected)
  })
})

describe('the refusal of an overloaded model', () => {
  it.each([
    [undefined, 1],
    [1, 1],
    [2500, 3],
  ])('with a wait of %s ms asks for a retry after %i s', (waitMs, retryAfterSeconds) => {
    expect(overloaded(TOY, waitMs)).toMatchObject({ retryAfterSeconds })
  })
})
