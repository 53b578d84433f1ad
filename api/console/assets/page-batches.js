import { Section } from './sections.js'
import { html, number, part, when } from './ui.js'

/** Batches of all organizations. */
export function sections() {
  return html`<${Section} ...${BATCHES} />`
}

/** @type {import('./sections.js').SectionOptions} */
const BATCHES = {
  title: 'All batches',
  path: 'batches',
  empty: 'No batch.',
  isRefreshed: true,
  filters: [
    { name: 'organization', label: 'Organization id' },
    {
      name: 'state',
      label: 'State',
      options: [
        ...['validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired'],
        ...['cancelling', 'cancelled'],
      ],
    },
  ],
  rowName: (row) => row.id,
  columns: [
    { label: 'Batch', show: (row) => ({ text: row.id, note: row.endpoint }) },
    { label: 'State', show: (row) => row.state.replace('_', ' ') },
    {
      label: 'Organization',
      show: ({ organization, organization_id: id }) => ({ text: organization, note: id }),
    },
    {
      label: 'Lines',
      isNumber: true,
      show: ({ total, completed, failed }) => ({
        text: `${number(completed)} of ${number(total)}`,
        note: failed > 0 ? `${number(failed)} failed` : '',
      }),
    },
    { label: 'Created', show: (row) => when(row.created_at) },
    { label: 'Expires', show: (row) => when(row.expires_at) },
  ],
  rowActions: [
    {
      label: 'Cancel batch',
      role: 'operator',
      method: 'POST',
      isDangerous: true,
      path: (row) => `batches/${part(row.organization_id)}/${part(row.id)}/cancel`,
      isOffered: ({ state }) => state === 'validating' || state === 'in_progress',
      question: 'Lines that are answered stay in its output file; the others are not run.',
      done: 'The batch is being cancelled.',
    },
  ],
}
