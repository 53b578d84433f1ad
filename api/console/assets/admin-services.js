import { duration, figure, NOTHING } from './admin-figures.js'

// The table of services: what works, what fails, since when, why, and what to do.

/**
 * @typedef {import('./admin-view.js').Overview} Overview
 * @typedef {import('./admin-view.js').QueueOverview} QueueOverview
 * @typedef {import('./admin-view.js').WorkerHeartbeat} WorkerHeartbeat
 * @typedef {import('./admin-view.js').DependencyState} DependencyState
 * @typedef {import('./admin-view.js').Cell} Cell @typedef {import('./admin-view.js').Table} Table
 */

const DEPENDENCY_NAMES = new Map([
  ['database', 'Postgres'],
  ['database_replica', 'Postgres, read replica'],
  ['redis', 'Redis'],
  ['redis_writes', 'Redis, writing'],
  ['storage', 'Object storage'],
])
const MODELS_MAX = 20
const WORKS = /** @type {const} */ ({ text: 'works', tone: 'good' })
const FAILS = /** @type {const} */ ({ text: 'fails', tone: 'bad' })
const READ_LOG = 'read its last log lines and its exit code: 137 means too little memory'

/** @param {Overview} overview @returns {Table} */
export function servicesTable(overview) {
  const { dependencies, workers, atMs, isRedisReachable } = overview
  return {
    id: 'dependencies',
    title: 'Services',
    about: 'What this process and each worker needs, and the workers themselves.',
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
      ...messagesRows(overview),
      ...(isRedisReachable ? [workersCells(overview), ...modelRows(overview)] : []),
    ],
    empty: 'No service is checked.',
  }
}

/** @param {WorkerHeartbeat} worker */
export function nameOfWorker({ hostname, pid }) {
  return `${hostname}, ${pid}`
}

/** @param {DependencyState} state @param {number} atMs @param {string} [note] @returns {Cell[]} */
function dependencyCells({ name, isOk, sinceMs, reason, remedy }, atMs, note) {
  return [
    { text: DEPENDENCY_NAMES.get(name) ?? name, ...(note !== undefined && { note }) },
    isOk ? WORKS : FAILS,
    ageCell(sinceMs, atMs),
    { text: reason ?? NOTHING },
    { text: isOk ? NOTHING : remedy },
  ]
}

/** @param {Overview} overview @returns {Cell[][]} */
function messagesRows({ outbox, atMs }) {
  if (outbox === undefined || outbox.failing === 0) return []
  const { failing, failingSince, lastError } = outbox
  const sinceMs = failingSince === undefined ? undefined : new Date(failingSince).getTime()
  const messages = failing === 1 ? '1 message waits' : `${figure(failing)} messages wait`
  return [
    [
      { text: 'Mails and texts' },
      FAILS,
      ageCell(sinceMs, atMs),
      { text: `${lastError}; ${messages} for the next attempt` },
      { text: 'check AUTH_SMTP_* and the mail server; for texts, the settings of the SMS gateway' },
    ],
  ]
}

/** @param {Overview} overview @returns {Cell[]} */
function workersCells({ workers, workersLostAtMs: lost, atMs }) {
  const reasons = [
    ...(workers.length === 0 ? ['no worker is alive'] : []),
    ...(lost.length > 0 ? [`${figure(lost.length)} ended or froze without notice`] : []),
  ]
  const isLost = lost.length > 0
  const lostState = /** @type {const} */ ({ text: 'lost', tone: 'warn' })
  return [
    { text: 'Workers' },
    workers.length === 0 ? FAILS : isLost ? lostState : WORKS,
    ageCell(isLost ? Math.max(...lost) : undefined, atMs),
    { text: reasons.join('; ') || NOTHING },
    {
      text:
        [
          ...(workers.length === 0 ? ['start or restart a worker'] : []),
          ...(isLost ? [READ_LOG] : []),
        ].join('; ') || NOTHING,
    },
  ]
}

/** @param {Overview} overview @returns {Cell[][]} */
function modelRows({ queues, workers, atMs }) {
  if (workers.length === 0) return []
  const unserved = queues.filter(({ workersReady }) => workersReady === 0)
  return unserved.slice(0, MODELS_MAX).map((queue) => modelCells(queue, workers, atMs))
}

/**
 * @param {QueueOverview} queue @param {readonly WorkerHeartbeat[]} workers @param {number} atMs
 * @returns {Cell[]}
 */
function modelCells({ kind, modelId, waiting = 0, servedAtMs, ...queue }, workers, atMs) {
  const loadError = workers
    .flatMap((worker) => worker.queues)
    .find((each) => each.kind === kind && each.modelId === modelId && each.loadError)?.loadError
  const isLoading = queue.workers > 0 && loadError === undefined
  // An installation may leave out a model, or training, on purpose.
  const isFailing = loadError !== undefined || (!isLoading && waiting > 0)
  const jobs = waiting > 0 ? `; ${figure(waiting)} waiting` : ''
  const reason = loadError ?? (isLoading ? 'a worker loads it' : 'no worker serves it')
  const state = isLoading ? 'loading' : isFailing ? 'fails' : 'not served'
  const tone = isFailing ? 'bad' : 'warn'
  return [
    { text: modelId, note: `${kind} model` },
    { text: state, tone: /** @type {'warn' | 'bad'} */ (tone) },
    ageCell(servedAtMs, atMs),
    { text: `${reason}${jobs}` },
    { text: isLoading ? NOTHING : modelRemedy(loadError) },
  ]
}

/** @param {string | undefined} loadError */
function modelRemedy(loadError) {
  return loadError === undefined
    ? 'start a worker whose MILLRACE_WORKER_KINDS and MILLRACE_WORKER_MODELS include it'
    : 'check its entry in models.json, its files, and the memory of the worker'
}

/** @param {number | undefined} sinceMs @param {number} atMs @returns {Cell} */
function ageCell(sinceMs, atMs) {
  return { text: sinceMs === undefined ? NOTHING : duration(Math.max(0, atMs - sinceMs)) }
}
