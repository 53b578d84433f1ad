import { Section } from './sections.js'
import { bytes, html, when } from './ui.js'

/** Files of all organizations. */
export function sections() {
  return html`<${Section} ...${FILES} />`
}

/** @type {import('./sections.js').SectionOptions} */
const FILES = {
  title: 'All files',
  path: 'files',
  empty: 'No file.',
  about: 'What is stored, for whom and until when; the content is not shown.',
  filters: [
    { name: 'organization', label: 'Organization id' },
    { name: 'state', label: 'Purpose' },
  ],
  rowName: (row) => row.id,
  columns: [
    { label: 'File', show: (row) => ({ text: row.filename, note: row.id }) },
    { label: 'Purpose', show: (row) => row.purpose },
    {
      label: 'Organization',
      show: ({ organization, organization_id: id }) => ({ text: organization, note: id }),
    },
    { label: 'Size', isNumber: true, show: (row) => bytes(row.bytes) },
    { label: 'Created', show: (row) => when(row.created_at) },
    { label: 'Expires', show: (row) => when(row.expires_at) || 'never' },
  ],
}
