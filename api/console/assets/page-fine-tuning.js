import { Section } from './sections.js'
import { html, number, part, when } from './ui.js'

/** Fine-tuning jobs of all organizations. */
export function sections() {
  return html`<${Section} ...${JOBS} />`
}

const OPEN = ['validating_files', 'queued', 'running', 'paused']

/** @type {import('./sections.js').SectionOptions} */
const JOBS = {
  title: 'Fine-tuning jobs',
  path: 'fine-tuning',
  empty: 'No job.',
  isRefreshed: true,
  about: 'The workers that train are listed on the page of the queues, under training.',
  filters: [
    { name: 'organization', label: 'Organization id' },
    { name: 'state', label: 'State', options: [...OPEN, 'succeeded', 'failed', 'cancelled'] },
  ],
  rowName: (row) => row.id,
  columns: [
    { label: 'Job', show: (row) => ({ text: row.id, note: row.fine_tuned_model ?? '' }) },
    {
      label: 'State',
      show: ({ state, error }) => ({
        text: state.replace('_', ' '),
        note: error ?? '',
        tone: state === 'failed' ? 'bad' : '',
      }),
    },
    {
      label: 'Organization',
      show: ({ organization, organization_id: id }) => ({ text: organization, note: id }),
    },
    { label: 'Base model', show: (row) => row.model },
    {
      label: 'Step',
      isNumber: true,
      show: ({ step, steps, loss }) => ({
        text: step === null ? '' : `${number(step)} of ${number(steps)}`,
        note: loss === null ? '' : `loss ${loss.toFixed(2)}`,
      }),
    },
    { label: 'Trained tokens', isNumber: true, show: (row) => number(row.trained_tokens ?? 0) },
    {
      label: 'Created',
      show: ({ created_at: created, finished_at: ended }) => ({
        text: when(created),
        note: ended === null ? '' : `ended ${when(ended)}`,
      }),
    },
  ],
  rowActions: [
    {
      label: 'Pause job',
      role: 'operator',
      method: 'POST',
      path: (row) => `fine-tuning/${part(row.organization_id)}/${part(row.id)}/pause`,
      isOffered: ({ state }) => OPEN.includes(state) && state !== 'paused',
      question: 'Its training ends within a step, and continues later at its last checkpoint.',
      done: 'The job is paused.',
    },
    {
      label: 'Resume job',
      role: 'operator',
      method: 'POST',
      path: (row) => `fine-tuning/${part(row.organization_id)}/${part(row.id)}/resume`,
      isOffered: ({ state }) => state === 'paused',
      question: 'It waits for a worker, and continues at its last checkpoint.',
      done: 'The job waits for a worker again.',
    },
    {
      label: 'Cancel job',
      role: 'operator',
      method: 'POST',
      isDangerous: true,
      path: (row) => `fine-tuning/${part(row.organization_id)}/${part(row.id)}/cancel`,
      isOffered: ({ state }) => OPEN.includes(state),
      question: 'Its training ends within a step. Checkpoints stay until they are deleted.',
      done: 'The job is cancelled.',
    },
  ],
}
