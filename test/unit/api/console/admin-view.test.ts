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
  servedAtMs: NOW,
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
    isRedisReachable: true,
    workersLostAtMs: [],
    dependencies: [],
    incidents: { errors: [], failed: [], slow: [] },
    outbox: { waiting: 0, failing: 0 },
    ...changes,
  })
}

const WORKERS_WORK = ['Workers', 'works', '–', '–', '–']

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
      WORKERS_WORK,
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

  it('shows nothing of Redis while Redis is away, instead of zeros', () => {
    const redis = { name: 'redis', isOk: false, isRequired: true, remedy: 'check REDIS_URL' }
    const dependencies = [{ ...redis, sinceMs: NOW - 5000, reason: 'refused' }]
    const shown = view({ isRedisReachable: false, dependencies, queues: [], workers: [] })
    const known = shown.tiles.filter(({ value }) => value !== '–')
    expect(known.map(({ label }) => label)).toEqual(['Mails and texts waiting'])
    expect(rows(shown, 'dependencies')).toEqual([
      ['Redis', 'fails', '5 s', 'refused', 'check REDIS_URL'],
    ])
    const [, ...others] = shown.tables
    expect(new Set(others.map(({ empty }) => empty))).toEqual(
      new Set(['These are unknown while Redis is away.']),
    )
  })

  it('names each model without a ready worker, since when, why, and the remedy', () => {
    const [served] = WORKER.queues as [ServedQueue]
    const other = { ...QUEUE, modelId: 'other', workersReady: 0, servedAtMs: NOW - 60_000 }
    const ofQueue = (queue: Partial<QueueOverview>, worker: Partial<ServedQueue> = {}) => {
      const queues = [served, { ...served, modelId: 'other', isReady: false, ...worker }]
      const shown = view({ queues: [{ ...other, ...queue }], workers: [{ ...WORKER, queues }] })
      return rows(shown, 'dependencies')?.[1]
    }
    const start = 'start a worker whose MILLRACE_WORKER_KINDS and MILLRACE_WORKER_MODELS include it'
    const check = 'check its entry in models.json, its files, and the memory of the worker'
    expect([
      ofQueue({ workers: 0, waiting: 1 }),
      ofQueue({ workers: 0 }),
      ofQueue({ servedAtMs: undefined }),
      ofQueue({}, { loadError: 'no such file' }),
    ]).toEqual([
      ['other', 'fails', '60 s', 'no worker serves it; 1 waiting', start],
      ['other', 'not served', '60 s', 'no worker serves it', start],
      ['other', 'loading', '–', 'a worker loads it', '–'],
      ['other', 'fails', '60 s', 'no such file', check],
    ])
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
    const lost = view({ workersLostAtMs: [NOW - 90_000, NOW - 20_000] })
    expect(tile(lost, 'Workers alive')).toMatchObject({
      note: 'every queue is served; 2 lost in the last hour',
      tone: 'warn',
    })
    expect(rows(lost, 'dependencies')).toEqual([
      [
        'Workers',
        'lost',
        '20 s',
        '2 ended or froze without notice',
        expect.stringContaining('137'),
      ],
    ])
    const none = view({ workers: [], workersLostAtMs: [NOW - 20_000] })
    expect(rows(none, 'dependencies')?.[0]).toEqual([
      'Workers',
      'fails',
      '20 s',
      'no worker is alive; 1 ended or froze without notice',
      expect.stringMatching(/^start or restart a worker; read its last log lines/),
    ])
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
    const failing = { ...outbox, failingSince: new Date(NOW - 30_000) }
    expect(rows(view({ outbox: failing }), 'dependencies')?.[0]).toEqual([
      'Mails and texts',
      'fails',
      '30 s',
      'ECONNECTION; 2 messages wait for the next attempt',
      expect.stringContaining('check AUTH_SMTP_*'),
    ])
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

  it('warns of a long wait alone, and shows no figures that a queue does not have', () => {
    const waiting = (oldestWaitMs: number) =>
      tile(view({ queues: [{ ...QUEUE, waiting: 1, oldestWaitMs }] }), 'Waiting')
    expect(waiting(9000)).toEqual({ label: 'Waiting', value: '1', note: 'the oldest for 9 s' })
    expect(waiting(11_000)).toMatchObject({ note: 'the oldest for 11 s', tone: 'warn' })
    const busy = { tokensPerSecond: 7, jobsPerSecond: 2, failedLastHour: 3 }
    const queues = (['completion', 'embedding', 'training'] as const).map((kind) => ({
      ...QUEUE,
      ...busy,
      kind,
    }))
    expect(rows(view({ queues }), 'queues')?.map((cells) => cells.slice(5, 8))).toEqual([
      ['2', '7', '3'],
      ['2', '–', '3'],
      ['2', '–', '–'],
    ])
  })

  it('distinguishes server faults from those of clients', () => {
    const errors = [
      { kind: 'notFound', modelId: undefined, count: 9 },
      { kind: 'internal', modelId: 'toy', count: 2 },
    ] as const
    const shown = view({ incidents: { errors, failed: [], slow: [] } })
    expect(tile(shown, 'Errors in the last hour')).toMatchObject({
      value: '11',
      note: '2 caused by the service',
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
