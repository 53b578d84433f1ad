import {
  duration,
  figure,
  NOTHING,
  optionalDuration,
  percent,
  sum,
  words,
} from './admin-figures.js'

// The content of the console's overview: texts and numbers, no markup. The server renders it first
// and the page's script afterwards, so both show the same.

/**
 * @typedef {{ text: string, note?: string, share?: number, tone?: 'bad' | 'warn' | 'good' }} Cell
 * @typedef {{ label: string, isNumber?: boolean }} Column
 * @typedef {{ id: string, title: string, about: string, columns: Column[], rows: Cell[][], empty:
 * string }} Table @typedef {{ label: string, value: string, note: string, tone?: 'bad' | 'warn' |
 * 'good' }} Tile @typedef {{ tiles: Tile[], tables: Table[] }} View
 *
 * @typedef {{ kind: string, modelId: string, waiting?: number, running?: number, oldestWaitMs?:
 * number,
 *   failedLastHour: number, jobsPerSecond: number, tokensPerSecond: number, slotsUsed: number,
 *   slots: number, workersReady: number, workers: number }} QueueOverview
 * @typedef {{ kind: string, modelId: string, isReady: boolean, slots: number, active: number,
 *   waiting: number, jobsPerSecond: number, tokensPerSecond: number, cacheUse: number, isFailing?: boolean, loadError?: string }} ServedQueue
 * @typedef {{ workerId: string, version: string, pid: number, hostname: string, startedAtMs:
 * number,
 *   isDraining: boolean, queues: readonly ServedQueue[], failing?: readonly DependencyState[] }} WorkerHeartbeat
 * @typedef {{ atMs: number, requestId: string, method: string, route: string, status: number,
 *   modelId?: string }} SeenRequest
 * @typedef {SeenRequest & { kind: string }} FailedRequest
 * @typedef {SeenRequest & { durationMs: number, queueMs?: number, firstTokenMs?: number,
 *   completionTokens?: number }} SlowRequest
 * @typedef {{ kind: string, modelId?: string, count: number }} ErrorCount
 * @typedef {{ name: string, isOk: boolean, isRequired: boolean, sinceMs: number, remedy: string, reason?: string }}
 * DependencyState @typedef {{ version: string, atMs: number, slowAfterMs: number,
 *   dependencies: readonly DependencyState[], queues: readonly QueueOverview[],
 *   workers: readonly WorkerHeartbeat[], workersLost: number, incidents: { errors: readonly ErrorCount[],
 *   failed: readonly FailedRequest[], slow: readonly SlowRequest[] },
 *   outbox?: { waiting: number, failing: number, lastError?: string } }} Overview
 */

/** Error kinds caused by the service itself. */
const OWN_FAULTS = ['internal', 'upstream', 'overloaded', 'deadline']
const ROWS_MAX = 20
/** Longer waits are highlighted. */
const LONG_WAIT_MS = 10_000

/**
 * @param {Overview} overview
 * @returns {View}
 */
export function viewOf(overview) {
  return {
    tiles: tilesOf(overview),
    tables: [
      dependenciesTable(overview),
      queuesTable(overview),
      workersTable(overview),
      errorsTable(overview),
      slowTable(overview),
      failedTable(overview),
    ],
  }
}

/** @param {Overview} overview @returns {Tile[]} */
function tilesOf({ queues, workers, workersLost, incidents, outbox }) {
  const waiting = sum(queues, (queue) => queue.waiting ?? 0)
  const oldest = Math.max(0, ...queues.map((queue) => queue.oldestWaitMs ?? 0))
  const slots = sum(queues, (queue) => queue.slots)
  const used = sum(queues, (queue) => queue.slotsUsed)
  const draining = workers.filter((worker) => worker.isDraining).length
  const caches = workers.flatMap((worker) =>
    worker.queues.filter(({ kind, isReady }) => kind === 'completion' && isReady),
  )
  const cacheSlots = sum(caches, (cache) => cache.slots)
  const cacheUse = cacheSlots && sum(caches, (cache) => cache.cacheUse * cache.slots) / cacheSlots
  const errors = sum(incidents.errors, (error) => error.count)
  const own = sum(incidents.errors, ({ kind, count }) => (OWN_FAULTS.includes(kind) ? count : 0))
  return [
    {
      label: 'Waiting',
      value: figure(waiting),
      note: oldest > 0 ? `the oldest for ${duration(oldest)}` : 'nothing has to wait',
      ...(oldest > LONG_WAIT_MS && { tone: /** @type {const} */ ('warn') }),
    },
    {
      label: 'Running',
      value: figure(sum(queues, (queue) => queue.running ?? 0)),
      note: `${figure(used)} of ${figure(slots)} slots in use`,
    },
    {
      label: 'Tokens per second',
      value: figure(sum(queues, (queue) => queue.tokensPerSecond)),
      note: `${figure(sum(queues, (queue) => queue.jobsPerSecond))} jobs per second`,
    },
    {
      label: 'Cache in use',
      value: percent(cacheUse),
      note: cacheSlots === 0 ? 'no text model is loaded' : 'of the text models’ slots',
    },
    {
      label: 'Workers alive',
      value: figure(workers.length),
      note: [
        draining > 0 ? `${figure(draining)} about to stop` : workersNote(queues, workers),
        ...(workersLost > 0 ? [`${figure(workersLost)} died in the last hour`] : []),
      ].join('; '),
      ...(workersLost > 0 && { tone: /** @type {const} */ ('warn') }),
      ...(workers.length === 0 && { tone: /** @type {const} */ ('bad') }),
    },
    {
      label: 'Errors in the last hour',
      value: figure(errors),
      note: own > 0 ? `${figure(own)} of them ours` : 'none of them ours',
      ...(own > 0 && { tone: /** @type {const} */ ('bad') }),
    },
    messagesTile(outbox),
  ]
}

/** @param {Overview['outbox']} outbox @returns {Tile} */
function messagesTile(outbox) {
  const label = 'Mails and texts waiting'
  if (outbox === undefined) return { label, value: NOTHING, note: 'the database is unavailable' }
  const { waiting, failing, lastError } = outbox
  const value = figure(waiting)
  if (failing === 0) return { label, value, note: 'no delivery has failed' }
  return { label, value, note: `${figure(failing)} failed: ${lastError}`, tone: 'bad' }
}

/** @param {readonly QueueOverview[]} queues @param {readonly WorkerHeartbeat[]} workers */
function workersNote(queues, workers) {
  if (workers.length === 0) return 'nothing can be answered'
  const missing = queues.filter(({ workersReady }) => workersReady === 0).length
  if (missing > 0)
    return `${figure(missing)} ${missing === 1 ? 'queue is' : 'queues are'} not served`
  return 'every queue is served'
}

const DEPENDENCY_NAMES = new Map([
  ['database', 'Postgres'],
  ['database_replica', 'Postgres, read replica'],
  ['redis', 'Redis'],
  ['redis_writes', 'Redis, writing'],
  ['storage', 'Object storage'],
])

/** @param {Overview} overview @returns {Table} */
function dependenciesTable({ dependencies, workers, atMs }) {
  return {
    id: 'dependencies',
    title: 'Services',
    about: 'What this process needs, and what fails for a worker.',
    columns: [
      { label: 'Service' },
      { label: 'State' },
      { label: 'For', isNumber: true },
      { label: 'Reason' },
      { label: 'What to do' },
    ],
    rows: [
      ...dependencies.map((state) => dependencyCells(state, atMs)),
      ...workers.flatMap((worker) =>
        (worker.failing ?? []).map((state) =>
          dependencyCells(state, atMs, `for the worker ${nameOfWorker(worker)}`),
        ),
      ),
    ],
    empty: 'No service is checked.',
  }
}

/** @param {DependencyState} state @param {number} atMs @param {string} [note] @returns {Cell[]} */
function dependencyCells({ name, isOk, sinceMs, reason, remedy }, atMs, note) {
  return [
    { text: DEPENDENCY_NAMES.get(name) ?? name, ...(note !== undefined && { note }) },
    isOk ? { text: 'works', tone: 'good' } : { text: 'fails', tone: 'bad' },
    { text: duration(Math.max(0, atMs - sinceMs)) },
    { text: reason ?? NOTHING },
    { text: isOk ? NOTHING : remedy },
  ]
}

/** @param {Overview} overview @returns {Table} */
function queuesTable({ queues }) {
  return {
    id: 'queues',
    title: 'Queues',
    about: 'One queue for each model, and one for its fine-tuning.',
    columns: [
      { label: 'Model' },
      { label: 'Waiting', isNumber: true },
      { label: 'Oldest', isNumber: true },
      { label: 'Running', isNumber: true },
      { label: 'Slots used' },
      { label: 'Jobs/s', isNumber: true },
      { label: 'Tokens/s', isNumber: true },
      { label: 'Failed, 1 h', isNumber: true },
      { label: 'Workers', isNumber: true },
    ],
    rows: queues.map((queue) => [
      { text: queue.modelId, note: queue.kind },
      { text: queue.waiting === undefined ? NOTHING : figure(queue.waiting) },
      {
        text: queue.oldestWaitMs === undefined ? NOTHING : duration(queue.oldestWaitMs),
        ...((queue.oldestWaitMs ?? 0) > LONG_WAIT_MS && { tone: /** @type {const} */ ('warn') }),
      },
      { text: queue.running === undefined ? NOTHING : figure(queue.running) },
      slotsCell(queue.slotsUsed, queue.slots),
      { text: figure(queue.jobsPerSecond) },
      { text: queue.kind === 'completion' ? figure(queue.tokensPerSecond) : NOTHING },
      {
        text: figure(queue.failedLastHour),
        ...(queue.failedLastHour > 0 && { tone: /** @type {const} */ ('bad') }),
      },
      {
        text: `${figure(queue.workersReady)} ready`,
        ...(queue.workersReady === 0 && { tone: /** @type {const} */ ('bad') }),
        ...(queue.workers > queue.workersReady && {
          note: `${figure(queue.workers - queue.workersReady)} loading`,
        }),
      },
    ]),
    empty: 'The catalogue holds no model.',
  }
}

/** @param {Overview} overview @returns {Table} */
function workersTable({ workers, atMs }) {
  return {
    id: 'workers',
    title: 'Workers',
    about: 'Every process that is alive, with what it serves.',
    columns: [
      { label: 'Worker' },
      { label: 'Model' },
      { label: 'State' },
      { label: 'Slots used' },
      { label: 'Waiting inside', isNumber: true },
      { label: 'Cache', isNumber: true },
      { label: 'Tokens/s', isNumber: true },
    ],
    rows: workers.flatMap((worker) =>
      worker.queues.map((queue) => [
        {
          text: nameOfWorker(worker),
          note: `${worker.version}, up ${duration(atMs - worker.startedAtMs)}`,
        },
        { text: queue.modelId, note: queue.kind },
        stateCell(worker, queue),
        slotsCell(queue.active, queue.slots),
        { text: figure(queue.waiting) },
        { text: queue.kind === 'completion' ? percent(queue.cacheUse) : NOTHING },
        { text: queue.kind === 'completion' ? figure(queue.tokensPerSecond) : NOTHING },
      ]),
    ),
    empty: 'No worker is alive: requests wait until one is started.',
  }
}

/** @param {WorkerHeartbeat} worker */
function nameOfWorker({ hostname, pid }) {
  return `${hostname}, ${pid}`
}

/** @param {WorkerHeartbeat} worker @param {ServedQueue} queue @returns {Cell} */
function stateCell(worker, queue) {
  const { loadError } = queue
  if (worker.isDraining) return { text: 'stopping', tone: 'warn' }
  if (!queue.isReady && loadError !== undefined)
    return { text: 'cannot be loaded', note: loadError, tone: 'bad' }
  return queue.isReady ? { text: 'ready', tone: 'good' } : { text: 'loading', tone: 'warn' }
}

/** @param {number} used @param {number} slots @returns {Cell} */
function slotsCell(used, slots) {
  return { text: `${figure(used)} of ${figure(slots)}`, share: slots === 0 ? 0 : used / slots }
}

/** @param {Overview} overview @returns {Table} */
function errorsTable({ incidents }) {
  return {
    id: 'errors',
    title: 'Errors by kind',
    about: 'The last hour, over all API processes.',
    columns: [{ label: 'Kind' }, { label: 'Model' }, { label: 'Count', isNumber: true }],
    rows: incidents.errors.slice(0, ROWS_MAX).map(({ kind, modelId, count }) => [
      {
        text: words(kind),
        ...(OWN_FAULTS.includes(kind) && { tone: /** @type {const} */ ('bad') }),
      },
      { text: modelId ?? NOTHING },
      { text: figure(count) },
    ]),
    empty: 'None in the last hour.',
  }
}

/** @param {Overview} overview @returns {Table} */
function slowTable({ incidents, atMs, slowAfterMs }) {
  return {
    id: 'slow',
    title: 'Recent slow requests',
    about: `Those that took longer than ${duration(slowAfterMs)}, newest first.`,
    columns: [
      { label: 'When' },
      { label: 'Request' },
      { label: 'Model' },
      { label: 'Took', isNumber: true },
      { label: 'Waited', isNumber: true },
      { label: 'First token', isNumber: true },
      { label: 'Tokens', isNumber: true },
      { label: 'Status', isNumber: true },
    ],
    rows: incidents.slow.slice(0, ROWS_MAX).map((request) => [
      ...requestCells(request, atMs),
      { text: duration(request.durationMs) },
      { text: optionalDuration(request.queueMs) },
      { text: optionalDuration(request.firstTokenMs) },
      {
        text: request.completionTokens === undefined ? NOTHING : figure(request.completionTokens),
      },
      { text: String(request.status) },
    ]),
    empty: 'None of late.',
  }
}

/** @param {Overview} overview @returns {Table} */
function failedTable({ incidents, atMs }) {
  return {
    id: 'failed',
    title: 'Recent failures',
    about: 'Answers that were not given or were refused for lack of room, newest first.',
    columns: [
      { label: 'When' },
      { label: 'Request' },
      { label: 'Model' },
      { label: 'Kind' },
      { label: 'Status', isNumber: true },
    ],
    rows: incidents.failed.slice(0, ROWS_MAX).map((request) => [
      ...requestCells(request, atMs),
      {
        text: words(request.kind),
        ...(OWN_FAULTS.includes(request.kind) && { tone: /** @type {const} */ ('bad') }),
      },
      { text: String(request.status) },
    ]),
    empty: 'None of late.',
  }
}

/** @param {SeenRequest} request @param {number} nowMs @returns {Cell[]} */
function requestCells({ atMs, method, route, requestId, modelId }, nowMs) {
  return [
    { text: `${duration(nowMs - atMs)} ago` },
    { text: `${method} ${route}`, note: requestId },
    { text: modelId ?? NOTHING },
  ]
}
