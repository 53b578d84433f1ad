import { describe, expect, it } from 'vitest'

import { type View, viewOf } from '#api/console/assets/admin-view.js'
import type { Overview, QueueOverview } from '#api/console/overview.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'

const NOW = Date.UTC(2026, 0, 1)
const QUEUE: QueueOverview = {
  kind: 'completion',
  modelId: 'toy',
  waiting: 0,
  running: 0,
  oldestWaitMs: undefined,
  failedLastHour: 0,
  jobsPerSecond: 0,
  tokensPerSecond: 0,
  slotsUsed: 0,
  slots: 16,
  workersReady: 1,
  workers: 1,
}
const WORKER: WorkerHeartbeat = {
  workerId: 'w',
  version: '1.2.3',
  nodeVersion: 'v24',
  pid: 7,
  hostname: 'host',
  startedAtMs: NOW - 7_200_000,
  isDraining: false,
  queues: [
    {
      kind: 'completion',
      modelId: 'toy',
      isReady: true,
      slots: 16,
      active: 4,
      waiting: 2,
      jobsPerSecond: 1,
      tokensPerSecond: 123.45,
      cacheUse: 0.25,
    },
  ],
}

function view(changes: Partial<Overview>): View {
  return viewOf({
    version: '1',
    atMs: NOW,
    slowAfterMs: 5000,
    queues: [QUEUE],
    workers: [WORKER],
    workersLost: 0,
    dependencies: [],
    incidents: { errors: [], failed: [], slow: [] },
    outbox: { waiting: 0, failing: 0 },
    ...changes,
  })
}

const tile = ({ tiles }: View, label: string) => tiles.find((each) => each.label === label)
const rows = ({ tables }: View, id: string) =>
  tables.find((table) => table.id === id)?.rows.map((cells) => cells.map(({ text }) => text))

describe('the administration page', () => {
  it('shows the state of each service, since when, why, and the remedy', () => {
    const of = { isRequired: false, remedy: 'check S3_ENDPOINT', sinceMs: NOW - 60_000 }
    const failed = { name: 'storage', isOk: false, reason: 'refused', ...of }
    const dependencies = [{ name: 'redis', isOk: true, ...of }, failed]
    const workers = [WORKER, { ...WORKER, failing: [failed] }]
    const shown = view({ dependencies, workers })
    expect(rows(shown, 'dependencies')).toEqual([
      ['Redis', 'works', '60 s', '–', '–'],
      ['Object storage', 'fails', '60 s', 'refused', 'check S3_ENDPOINT'],
      ['Object storage', 'fails', '60 s', 'refused', 'check S3_ENDPOINT'],
    ])
    const ofWorker = shown.tables.find(({ id }) => id === 'dependencies')?.rows[2]
    expect(ofWorker?.[0]?.note).toBe('for the worker host, 7')
  })

  it('shows why a worker cannot load a model', () => {
    const [queue] = WORKER.queues
    const queues = [{ ...(queue as ServedQueue), isReady: false, loadError: 'no such file' }]
    const { tables } = view({ workers: [{ ...WORKER, queues }] })
    expect(tables.find(({ id }) => id === 'workers')?.rows[0]?.[2]).toMatchObject({
      text: 'cannot be loaded',
      note: 'no such file',
    })
  })

  it('shows slots, cache, speed and age of a worker', () => {
    expect(rows(view({}), 'workers')).toEqual([
      ['host, 7', 'toy', 'ready', '4 of 16', '2', '25 %', '123.5'],
    ])
    expect(tile(view({}), 'Cache in use')?.value).toBe('25 %')
    expect(tile(view({}), 'Workers alive')).toMatchObject({
      value: '1',
      note: 'every queue is served',
    })
  })

  it('warns when no worker is alive, and when a model has none', () => {
    const none = view({ workers: [], queues: [{ ...QUEUE, workers: 0, workersReady: 0 }] })
    expect(tile(none, 'Workers alive')).toMatchObject({ value: '0', tone: 'bad' })
    expect(tile(none, 'Cache in use')?.note).toBe('no text model is loaded')
    const partly = view({ queues: [QUEUE, { ...QUEUE, modelId: 'other', workersReady: 0 }] })
    expect(tile(partly, 'Workers alive')?.note).toBe('1 queue is not served')
  })

  it('marks workers that ended without a stop', () => {
    expect(tile(view({ workersLost: 2 }), 'Workers alive')).toMatchObject({
      note: 'every queue is served; 2 died in the last hour',
      tone: 'warn',
    })
  })

  it('marks mails that could not be delivered', () => {
    const outbox = { waiting: 3, failing: 2, lastError: 'ECONNECTION' }
    const label = 'Mails and texts waiting'
    expect(tile(view({ outbox }), label)).toEqual({
      label,
      value: '3',
      note: '2 failed: ECONNECTION',
      tone: 'bad',
    })
    expect(tile(view({}), label)?.note).toBe('no delivery has failed')
    expect(tile(view({ outbox: undefined }), label)?.note).toBe('the database is unavailable')
  })

  it.for([
    [undefined, '–'],
    [12, '12 ms'],
    [1234, '1.2 s'],
    [42_000, '42 s'],
    [600_000, '10 min'],
    [7_200_000, '2 h'],
    [500_000_000, '6 d'],
  ] as const)('writes a wait of %s ms as %s', ([oldestWaitMs, text]) => {
    expect(rows(view({ queues: [{ ...QUEUE, oldestWaitMs }] }), 'queues')?.[0]?.[2]).toBe(text)
  })

  it('distinguishes server faults from those of clients', () => {
    const errors = [
      { kind: 'notFound', modelId: undefined, count: 9 },
      { kind: 'internal', modelId: 'toy', count: 2 },
    ] as const
    const shown = view({ incidents: { errors, failed: [], slow: [] } })
    expect(tile(shown, 'Errors in the last hour')).toMatchObject({
      value: '11',
      note: '2 of them ours',
      tone: 'bad',
    })
    expect(rows(shown, 'errors')).toEqual([
      ['not found', '–', '9'],
      ['internal', 'toy', '2'],
    ])
  })

  it('lists a slow request with the time of each phase', () => {
    const slow = {
      atMs: NOW - 30_000,
      requestId: 'req-1',
      method: 'POST',
      route: '/v1/completions',
      status: 200,
      durationMs: 9000,
      modelId: 'toy',
      queueMs: 4000,
      firstTokenMs: 4500,
      completionTokens: 300,
    }
    expect(rows(view({ incidents: { errors: [], failed: [], slow: [slow] } }), 'slow')).toEqual([
      ['30 s ago', 'POST /v1/completions', 'toy', '9 s', '4 s', '4.5 s', '300', '200'],
    ])
  })
})
