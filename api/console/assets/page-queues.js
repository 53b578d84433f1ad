import { Section } from './sections.js'
import { bytes, html, number, pageUrl, part, place, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

const operator = 'operator'

/** All queues and the dead letters, or the jobs of one queue. */
export function sections() {
  const queue = place.params.get('queue')
  return queue === null
    ? html`<${Section} ...${QUEUES} /><${Section} ...${DEAD_LETTERS} />`
    : html`<${Section} ...${jobsOf(queue)} />`
}

/** @type {import('./sections.js').SectionOptions} */
const QUEUES = {
  title: 'All queues',
  path: 'queues',
  empty: 'No model.',
  isRefreshed: true,
  about: 'A paused queue accepts jobs and starts none: they wait until their deadline.',
  rowName: (row) => row.name,
  columns: [
    {
      label: 'Queue',
      show: ({ name, kind }) => ({
        text: name,
        note: kind,
        href: pageUrl('queues', { queue: name }),
      }),
    },
    {
      label: 'State',
      show: ({ is_paused: isPaused }) => {
        // While its Redis is away, nothing is known of the queue.
        if (isPaused === null) return { text: 'unknown', tone: 'bad' }
        return isPaused ? { text: 'paused', tone: 'warn' } : 'running'
      },
    },
    { label: 'Waiting', isNumber: true, show: (row) => number(row.waiting) },
    { label: 'Active', isNumber: true, show: (row) => number(row.active) },
  ],
  rowActions: [
    {
      label: 'Pause',
      role: operator,
      method: 'POST',
      path: ({ name }) => `queues/${part(name)}/pause`,
      isOffered: (row) => row.is_paused === false,
      question: 'Running jobs end; no other starts until the queue is resumed.',
      done: 'The queue is paused.',
    },
    {
      label: 'Resume',
      role: operator,
      method: 'POST',
      path: ({ name }) => `queues/${part(name)}/resume`,
      isOffered: (row) => row.is_paused === true,
      question: 'Waiting jobs start again.',
      done: 'The queue is resumed.',
    },
  ],
}

/** @type {import('./sections.js').SectionOptions} */
const DEAD_LETTERS = {
  title: 'Dead letters',
  path: 'dead-letters',
  empty: 'No job has killed its workers.',
  about:
    'Jobs that were abandoned because they kept killing their workers. Inputs are kept encrypted for a day, where the organization stores content. A retry costs nothing; its answer is discarded, because its client has received the error.',
  rowName: (row) => row.id,
  columns: [
    { label: 'Job', show: (row) => row.id },
    { label: 'Model', show: (row) => row.model },
    { label: 'Organization', show: (row) => row.organization_id },
    { label: 'Reason', show: (row) => row.reason.replaceAll('_', ' ') },
    {
      label: 'Input',
      isNumber: true,
      show: (row) => ({
        text: bytes(row.input_bytes),
        note: row.is_input_kept ? 'kept' : 'not kept',
      }),
    },
    { label: 'Enqueued', show: (row) => when(row.enqueued_at) },
  ],
  rowActions: [
    {
      label: 'Retry',
      role: operator,
      method: 'POST',
      isDangerous: true,
      path: ({ id }) => `dead-letters/${part(id)}/retry`,
      isOffered: (row) => row.is_input_kept,
      question: 'The job runs once more. It may kill up to three workers again.',
      done: 'The job runs. It leaves the list when it has ended well.',
    },
  ],
  actions: [
    {
      label: 'Clear',
      role: operator,
      method: 'DELETE',
      path: () => 'dead-letters',
      isDangerous: true,
      question: 'The records of all dead letters are deleted.',
      done: 'The dead letters are deleted.',
    },
  ],
}

/** @param {string} queue @returns {import('./sections.js').SectionOptions} */
function jobsOf(queue) {
  const path = `queues/${part(queue)}/jobs`
  const pathOf = (/** @type {Row} */ row, /** @type {string} */ verb) =>
    `${path}/${part(row.id)}/${verb}`
  const isWaiting = (/** @type {Row} */ row) => row.state === 'waiting'
  const common = { role: operator, method: 'POST', isOffered: isWaiting }
  return {
    title: `Jobs of ${queue}`,
    path,
    empty: 'The queue is empty.',
    isRefreshed: true,
    about: 'Active jobs and the next that wait, without what they contain.',
    rowName: (row) => row.job_id,
    columns: [
      { label: 'Job', show: (row) => ({ text: row.job_id, note: `epoch ${row.epoch}` }) },
      { label: 'State', show: (row) => row.state },
      { label: 'Organization', show: (row) => row.organization_id },
      { label: 'Priority', isNumber: true, show: (row) => number(row.priority) },
      { label: 'Enqueued', show: (row) => when(row.enqueued_at) },
      { label: 'Deadline', show: (row) => when(row.deadline_at) },
    ],
    rowActions: [
      {
        ...common,
        label: 'Move to the front',
        path: (row) => pathOf(row, 'first'),
        question: 'The job starts next.',
        done: 'The job is first.',
      },
      {
        ...common,
        label: 'Move to the back',
        path: (row) => pathOf(row, 'last'),
        question: 'The job starts after all others.',
        done: 'The job is last.',
      },
      {
        ...common,
        label: 'Cancel job',
        path: (row) => pathOf(row, 'cancel'),
        isDangerous: true,
        question: 'Its client receives the error `job_cancelled`.',
        done: 'The job is cancelled.',
      },
    ],
  }
}
