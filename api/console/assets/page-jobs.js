import { Section } from './sections.js'
import { html, number, part, when } from './ui.js'

/** Background jobs of all organizations. */
export function sections() {
  return html`<${Section} ...${JOBS} />`
}

/** Names of the stored priorities, by number. */
const PRIORITIES = ['flex', 'default', 'priority']

/** @type {import('./sections.js').SectionOptions} */
const JOBS = {
  title: 'Background jobs',
  path: 'jobs',
  empty: 'No job.',
  isRefreshed: true,
  about: 'Requests that run without a connection. What they contain is not shown.',
  filters: [
    { name: 'organization', label: 'Organization id' },
    {
      name: 'state',
      label: 'State',
      options: [
        'queued',
        'in_progress',
        'completed',
        'incomplete',
        'failed',
        'cancelled',
        'expired',
      ],
    },
  ],
  rowName: (row) => row.id,
  columns: [
    { label: 'Job', show: (row) => ({ text: row.id, note: row.endpoint }) },
    {
      label: 'State',
      show: ({ state, error }) => ({
        text: state.replace('_', ' '),
        note: error ?? '',
        tone: state === 'failed' || state === 'expired' ? 'bad' : '',
      }),
    },
    {
      label: 'Organization',
      show: ({ organization, organization_id: id }) => ({ text: organization, note: id }),
    },
    { label: 'Model', show: (row) => row.model ?? '' },
    { label: 'Priority', show: ({ priority }) => PRIORITIES[priority] ?? '' },
    { label: 'Attempts', isNumber: true, show: (row) => number(row.attempts) },
    {
      label: 'Created',
      show: ({ created_at: created, ended_at: ended }) => ({
        text: when(created),
        note: ended === null ? '' : `ended ${when(ended)}`,
      }),
    },
  ],
  rowActions: [
    {
      label: 'Priority',
      role: 'operator',
      method: 'POST',
      path: (row) => `jobs/${part(row.organization_id)}/${part(row.id)}/priority`,
      isOffered: (row) => row.state === 'queued',
      question: 'Jobs of the organization start in order of priority.',
      fields: [
        {
          name: 'priority',
          label: 'Priority',
          kind: 'select',
          options: PRIORITIES,
          value: (row) => PRIORITIES[row.priority] ?? '',
        },
      ],
      body: (values) => values,
      done: 'The priority is changed.',
    },
    {
      label: 'Cancel job',
      role: 'operator',
      method: 'POST',
      isDangerous: true,
      path: (row) => `jobs/${part(row.organization_id)}/${part(row.id)}/cancel`,
      isOffered: (row) => row.ended_at === null && row.cancelled_at === null,
      question: 'A waiting job ends at once, a running one within a second.',
      done: 'The job is being cancelled.',
    },
  ],
}
