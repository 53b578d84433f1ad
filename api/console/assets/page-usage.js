import { Section } from './sections.js'
import { apiUrl, html, number, pageUrl, place, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

const GROUPS = ['organization', 'key', 'model', 'day']
const DAYS = ['1', '7', '30', '90', '365']

/** Usage and cost by what the address says: organizations when it says nothing. */
export function sections() {
  const groupBy = place.params.get('group_by') ?? 'organization'
  const days = place.params.get('days') ?? '30'
  const wanted = new URLSearchParams({ group_by: groupBy, days })
  return html`<form class="card filters" method="get">
      ${choice({ name: 'group_by', label: 'Summed by', options: [...GROUPS, 'organization,model', 'day,model'], value: groupBy })}
      ${choice({ name: 'days', label: 'Days', options: DAYS, value: days })}
      <button>Show</button>
      <a class="button" href=${apiUrl(`usage.csv?${wanted}`)} download>Download as CSV</a>
    </form>
    <${Section} ...${listOf(groupBy, String(wanted))} />
    <${Section} ...${LIMITED} />`
}

/** @type {import('./sections.js').SectionOptions} */
const LIMITED = {
  title: 'Quotas',
  path: 'quotas',
  empty: 'No key or organization has its own quota.',
  about: 'Days and months are in UTC.',
  rowName: () => '',
  columns: [
    {
      label: 'Organization',
      show: ({ organization: name, organization_id: id }) => ({
        text: name,
        note: id,
        href: pageUrl('organizations', { organization: id }),
      }),
    },
    { label: 'Key', show: ({ key, key_id: id }) => ({ text: key ?? 'all', note: id ?? '' }) },
    { label: 'Quota', show: ({ amount, period }) => `${amount} per ${period}` },
    { label: 'Used', isNumber: true, show: ({ amount, used }) => amountText(amount, used) },
    { label: 'Limit', isNumber: true, show: ({ amount, limit }) => amountText(amount, limit) },
    { label: 'Resets', show: (row) => when(row.resets_at) },
  ],
}

/** @param {string} amount @param {number} value */
function amountText(amount, value) {
  return amount === 'cost' ? value.toFixed(4) : number(value)
}

/** @param {{ name: string, label: string, options: readonly string[], value: string }} field */
function choice({ name, label, options, value }) {
  return html`<label class="field"><span>${label}</span><select name=${name}>
    ${options.map((option) => html`<option key=${option} value=${option} selected=${option === value}>${option.replace(',', ' and ')}</option>`)}
  </select></label>`
}

/**
 * @param {string} groupBy @param {string} query @returns {import('./sections.js').SectionOptions}
 */
function listOf(groupBy, query) {
  const names = groupBy.split(',')
  const has = (/** @type {string} */ name) => names.includes(name)
  const named = (/** @type {string} */ label, /** @type {string} */ field) => ({
    label,
    show: (/** @type {Row} */ row) => ({
      text: row[field] ?? row[`${field}_id`] ?? '',
      note: row[field] === null ? '' : (row[`${field}_id`] ?? ''),
    }),
  })
  const total = (/** @type {string} */ label, /** @type {string} */ field) => ({
    label,
    isNumber: true,
    show: (/** @type {Row} */ row) => number(row[field]),
  })
  return {
    title: 'Usage',
    path: `usage?${query}`,
    empty: 'No usage in this time.',
    about: 'Costs follow the prices in models.json, per million tokens; without one there is none.',
    rowName: () => '',
    columns: [
      ...(has('day') ? [{ label: 'Day', show: (/** @type {Row} */ row) => row.day }] : []),
      ...(has('organization') || has('key') ? [named('Organization', 'organization')] : []),
      ...(has('key') ? [named('Key', 'key')] : []),
      ...(has('model') ? [{ label: 'Model', show: (/** @type {Row} */ row) => row.model }] : []),
      total('Requests', 'requests'),
      total('Prompt tokens', 'prompt_tokens'),
      total('Cached', 'cached_tokens'),
      total('Completion tokens', 'completion_tokens'),
      { label: 'Cost', isNumber: true, show: ({ cost }) => (cost === null ? '' : cost.toFixed(4)) },
    ],
  }
}
