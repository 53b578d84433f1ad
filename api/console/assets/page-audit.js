import { Section } from './sections.js'
import { html, when } from './ui.js'

/** The audit log of users and of this console. */
export function sections() {
  return html`<${Section} ...${AUDIT} />`
}

/** @type {import('./sections.js').SectionOptions} */
const AUDIT = {
  title: 'All entries',
  path: 'audit',
  empty: 'No entry matches.',
  filters: [{ name: 'query', label: 'Actor, action or object' }],
  rowName: (row) => row.id,
  columns: [
    { label: 'When', show: (row) => when(row.created_at) },
    { label: 'Actor', show: ({ actor, ip }) => ({ text: actor ?? '', note: ip }) },
    {
      label: 'Action',
      show: ({ action, traits }) => ({
        text: traits?.operation ?? action,
        note: traits?.operation ? action : '',
        tone: traits?.failed === undefined ? '' : 'bad',
      }),
    },
    { label: 'Details', show: ({ traits }) => detailsOf(traits ?? {}) },
  ],
}

/** @param {import('./ui.js').Row} traits */
function detailsOf({ operation: _operation, ...traits }) {
  return Object.entries(traits)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' · ')
}
