import { Section } from './sections.js'
import { html, place, when } from './ui.js'

/** The activities of all organizations in the last month. */
export function sections() {
  return html`<${Section} ...${ACTIVITIES} />`
}

/** @type {import('./sections.js').SectionOptions} */
const ACTIVITIES = {
  title: 'Activities of the last month',
  path: 'activities',
  empty: 'No activity matches.',
  filters: [
    { name: 'query', label: 'Type, actor or object' },
    {
      name: 'organization',
      label: 'Organization id',
      value: place.params.get('organization') ?? '',
    },
  ],
  rowName: (row) => row.id,
  columns: [
    { label: 'When', show: (row) => when(row.created_at) },
    { label: 'Type', show: (row) => row.type },
    { label: 'Actor', show: (row) => row.actor ?? '' },
    { label: 'Object', show: (row) => row.object ?? '' },
    {
      label: 'Organization',
      show: ({ organization, organization_id: id }) => ({ text: organization, note: id }),
    },
  ],
}
