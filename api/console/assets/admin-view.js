import {
  duration,
  figure,
  NOTHING,
  optionalDuration,
  percent,
  sum,
  words,
} from './admin-figures.js'
import { nameOfWorker, servicesTable } from './admin-services.js'

// The content of the console's overview: texts and numbers, no markup. The server renders it first
// and the page's script afterwards, so both show the same.

/**
 * @typedef {import('./admin-view.js').Cell} Cell @typedef {import('./admin-view.js').Table} Table
 * @typedef {import('./admin-view.js').Tile} Tile @typedef {import('./admin-view.js').View} View
 * @typedef {import('./admin-view.js').Overview} Overview
 * @typedef {import('./admin-view.js').QueueOverview} QueueOverview
 * @typedef {import('./admin-view.js').WorkerHeartbeat} WorkerHeartbeat
 * @typedef {import('./admin-view.js').ServedQueue} ServedQueue
 * @typedef {Omit<Overview['incidents']['failed'][number], 'kind'>} SeenRequest
 */

/** Error kinds caused by the service itself. */
const OWN_FAULTS = ['internal', 'upstream', 'overloaded', 'deadline']
const ROWS_MAX = 20
const REDIS_AWAY = 'unknown while Redis is away'
/** Longer waits are highlighted. */
const LONG_WAIT_MS = 10_000

/**
 * @param {Overview} overview
 * @returns {View}
 */
export function viewOf(overview) {
  const ofRedis = [
    queuesTable(overview),
    workersTable(overview),
    errorsTable(overview),
    slowTable(overview),
    failedTable(overview),
  ]
  const empty = overview.isRedisReachable ? {} : { empty: `These are ${REDIS_AWAY}.` }
  return {
    tiles: tilesOf(overview),
    tables: [servicesTable(overview), ...ofRedis.map((table) => ({ ...table, ...empty }))],
  }
}

/** @param {Overview} overview @returns {Tile[]} */
function tilesOf(overview) {
  const tiles = [...loadTiles(overview), workersTile(overview), errorsTile(overview)]
  const shown = overview.isRedisReachable
    ? tiles
    : tiles.map(({ label }) => ({ label, value: NOTHING, note: REDIS_AWAY }))
  return [...shown, messagesTile(overview.outbox)]
}

/** @param {Overview} overview @returns {Tile[]} */
function loadTiles({ queues, workers }) {
  const waiting = sum(queues, (queue) => queue.waiting ?? 0)
  const oldest = Math.max(0, ...queues.map((queue) => queue.oldestWaitMs ?? 0))
  const slots = sum(queues, (queue) => queue.slots)
  const used = sum(queues, (queue) => queue.slotsUsed)
  const caches = workers.flatMap((worker) =>
    worker.queues.filter(({ kind, isReady }) => kind === 'completion' && isReady),
  )
  const cacheSlots = sum(caches, (cache) => cache.slots)
  const cacheUse = cacheSlots && sum(caches, (cache) => cache.cacheUse * cache.slots) / cacheSlots
  return [
    {
      label: 'Waiting',
      value: figure(waiting),
      note: oldest > 0 ? `the oldest for ${duration(oldest)}` : 'no job waits',
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
  ]
}

/** @param {Overview} overview @returns {Tile} */
function workersTile({ queues, workers, workersLostAtMs: lost }) {
  const draining = workers.filter((worker) => worker.isDraining).length
  return {
    label: 'Workers alive',
    value: figure(workers.length),
    note: [
      draining > 0 ? `${figure(draining)} about to stop` : workersNote(queues, workers),
      ...(lost.length > 0 ? [`${figure(lost.length)} lost in the last hour`] : []),
    ].join('; '),
    ...(lost.length > 0 && { tone: /** @type {const} */ ('warn') }),
    ...(workers.length === 0 && { tone: /** @type {const} */ ('bad') }),
  }
}

/** @param {Overview} overview @returns {Tile} */
function errorsTile({ incidents }) {
  const own = sum(incidents.errors, ({ kind, count }) => (OWN_FAULTS.includes(kind) ? count : 0))
  return {
    label: 'Errors in the last hour',
    value: figure(sum(incidents.errors, (error) => error.count)),
    note: `${own > 0 ? figure(own) : 'none'} caused by the service`,
    ...(own > 0 && { tone: /** @type {const} */ ('bad') }),
  }
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
  if (workers.length === 0) return 'requests wait'
  const missing = queues.filter(({ workersReady }) => workersReady === 0).length
  if (missing > 0)
    return `${figure(missing)} ${missing === 1 ? 'queue is' : 'queues are'} not served`
  return 'every queue is served'
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
      // Requests fail, and those of a training queue are not counted by model.
      queue.kind === 'training'
        ? { text: NOTHING }
        : {
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
    empty: 'The catalogue has no model.',
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
    empty: 'None recently.',
  }
}

/** @param {Overview} overview @returns {Table} */
function failedTable({ incidents, atMs }) {
  return {
    id: 'failed',
    title: 'Recent failures',
    about: 'Requests that were refused or failed, newest first.',
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
    empty: 'None recently.',
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
