import { Section } from './sections.js'
import { html, number, pageUrl, part, place, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

const operator = 'operator'
const isDisabled = (/** @type {Row} */ row) => row.disabled_at !== null
const pathOf = (/** @type {Row} */ row) => `webhooks/${part(row.organization_id)}/${part(row.id)}`

/** All webhook endpoints, or the deliveries of one. */
export function sections() {
  const endpoint = place.params.get('endpoint')
  return endpoint === null
    ? html`<${Section} ...${ENDPOINTS} />`
    : html`<${Section} ...${deliveriesOf(endpoint)} />`
}

/** @type {import('./sections.js').SectionOptions} */
const ENDPOINTS = {
  title: 'All endpoints',
  path: 'webhooks',
  empty: 'No webhook endpoint.',
  filters: [
    { name: 'organization', label: 'Organization id' },
    { name: 'state', label: 'State', options: ['enabled', 'disabled'] },
  ],
  rowName: (row) => row.id,
  columns: [
    {
      label: 'Endpoint',
      show: ({ id, url }) => ({ text: url, note: id, href: pageUrl('webhooks', { endpoint: id }) }),
    },
    {
      label: 'State',
      show: (row) =>
        isDisabled(row)
          ? { text: 'disabled', note: row.disabled_reason ?? '', tone: 'warn' }
          : row.failing_since === null
            ? 'enabled'
            : { text: 'failing', note: `since ${when(row.failing_since)}`, tone: 'bad' },
    },
    {
      label: 'Organization',
      show: ({ organization, organization_id: id }) => ({ text: organization, note: id }),
    },
    { label: 'Events', show: ({ events }) => (events === null ? 'all' : events.join(', ')) },
    { label: 'Pending', isNumber: true, show: (row) => number(row.pending) },
  ],
  rowActions: [
    {
      label: 'Disable',
      role: operator,
      method: 'PATCH',
      path: pathOf,
      isOffered: (row) => !isDisabled(row),
      question: 'Nothing is delivered to it until it is enabled again.',
      body: () => ({ disabled: true }),
      done: 'The endpoint is disabled.',
    },
    {
      label: 'Enable',
      role: operator,
      method: 'PATCH',
      path: pathOf,
      isOffered: isDisabled,
      question: 'Pending deliveries are sent again.',
      body: () => ({ disabled: false }),
      done: 'The endpoint is enabled.',
    },
  ],
}

/** @param {string} endpoint @returns {import('./sections.js').SectionOptions} */
function deliveriesOf(endpoint) {
  const path = `webhooks/${part(endpoint)}/deliveries`
  return {
    title: `Deliveries to ${endpoint}`,
    path,
    empty: 'No delivery.',
    isRefreshed: true,
    rowName: (row) => row.id,
    columns: [
      { label: 'Delivery', show: (row) => ({ text: row.type, note: row.id }) },
      {
        label: 'State',
        show: ({ state, last_status: status, last_error: error }) => ({
          text: state,
          note: error ?? (status === null ? '' : `HTTP ${status}`),
          tone: state === 'failed' ? 'bad' : '',
        }),
      },
      { label: 'Attempts', isNumber: true, show: (row) => number(row.attempts) },
      { label: 'Created', show: (row) => when(row.created_at) },
      { label: 'Delivered', show: (row) => when(row.delivered_at) },
    ],
    rowActions: [
      {
        label: 'Redeliver',
        role: operator,
        method: 'POST',
        path: (row) => `${path}/${part(row.id)}/redeliver`,
        question: 'The event is sent again, at once.',
        done: 'The event is on its way.',
      },
    ],
  }
}
