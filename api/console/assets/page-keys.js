import { QUOTAS, quotasText } from './quotas.js'
import { Section } from './sections.js'
import { html, number, pageUrl, part, place, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

const administrator = 'administrator'
const SCOPES = [
  ...['completions', 'chat', 'edits', 'embeddings', 'images', 'audio', 'search', 'responses'],
  ...['batches', 'jobs', 'files', 'activities:read', 'activities:write', 'usage', 'keys'],
  ...['organizations', 'webhooks', 'fine_tuning'],
]

/** @type {import('./actions.js').Field[]} */
const LIMITS = [
  { name: 'requests_per_minute', label: 'Requests in a minute' },
  { name: 'tokens_per_minute', label: 'Tokens in a minute' },
  { name: 'concurrent_requests', label: 'Requests at the same time' },
  ...QUOTAS,
].map((field) => ({ ...field, kind: 'number', isOptional: true, hint: 'Empty means no limit.' }))

/** All API keys. */
export function sections() {
  const organization = place.params.get('organization') ?? ''
  return html`<${Section} ...${listOf(organization)} />`
}

/** @param {string} organization @returns {import('./sections.js').SectionOptions} */
function listOf(organization) {
  return {
    title: 'Keys in use',
    path: 'keys',
    empty: 'No key matches.',
    aside: ({ limits }) => html`<p class="muted small">${limitsText(limits)}</p>`,
    filters: [
      { name: 'query', label: 'Name, id or beginning of the secret' },
      { name: 'organization', label: 'Organization id', value: organization },
    ],
    rowName: (row) => row.name,
    columns: [
      { label: 'Name', show: ({ name, id }) => ({ text: name, note: id }) },
      { label: 'Secret', show: (row) => `${row.prefix}…` },
      {
        label: 'Organization',
        show: ({ organization: name, organization_id: id }) => ({
          text: name,
          note: id,
          href: pageUrl('organizations', { organization: id }),
        }),
      },
      {
        label: 'Rights',
        show: ({ scopes, models }) => ({
          text: scopes === null ? 'all scopes' : scopes.join(', '),
          note: models === null ? 'all models' : models.join(', '),
        }),
      },
      { label: 'Limits', show: (row) => limitsOf(row) },
      {
        label: 'Last use',
        show: (row) => ({ text: when(row.last_used_at) || 'never', note: endOf(row) }),
      },
    ],
    actions: [creationIn(organization)],
    rowActions: [
      {
        label: 'Limits',
        role: administrator,
        method: 'POST',
        path: ({ id }) => `keys/${part(id)}/limits`,
        question: 'They hold within a second, besides those of the server and the organization.',
        fields: LIMITS.map((field) => ({ ...field, value: (row) => row?.[field.name] ?? '' })),
        body: limitsIn,
        done: 'The limits are changed.',
      },
      {
        label: 'Rotate',
        role: administrator,
        method: 'POST',
        isDangerous: true,
        path: ({ id }) => `keys/${part(id)}/rotate`,
        question: 'The key gets a new secret; the old one is invalid at once.',
        done: 'The key has a new secret.',
      },
      {
        label: 'Revoke',
        role: administrator,
        method: 'DELETE',
        isDangerous: true,
        path: ({ id }) => `keys/${part(id)}`,
        question: 'Requests with this key are refused from now on.',
        done: 'The key is revoked.',
      },
    ],
  }
}

/** @param {string} organization @returns {import('./actions.js').Action} */
function creationIn(organization) {
  return {
    label: 'Create',
    role: administrator,
    method: 'POST',
    path: () => 'keys',
    question: 'The secret is shown once.',
    fields: [
      { name: 'organization_id', label: 'Organization id', value: () => organization },
      { name: 'name', label: 'Name' },
      {
        name: 'scopes',
        label: 'Scopes',
        kind: 'checks',
        options: SCOPES,
        hint: 'None selected means all.',
      },
      {
        name: 'models',
        label: 'Models',
        isOptional: true,
        hint: 'Separated by commas; empty means all.',
      },
      {
        name: 'days',
        label: 'Days until it expires',
        kind: 'number',
        isOptional: true,
        hint: 'Empty means never.',
      },
      ...LIMITS,
    ],
    body({ organization_id, name, scopes, models, days, ...limits }) {
      const names = String(models)
        .split(',')
        .map((model) => model.trim())
        .filter((model) => model !== '')
      return {
        organization_id,
        name,
        expires_in_days: days ?? null,
        scopes: scopes.length === 0 ? null : scopes,
        models: names.length === 0 ? null : names,
        ...limitsIn(limits),
      }
    },
    done: 'The key is created.',
  }
}

/** @param {Row} row */
function endOf({ expires_at: expiresAt }) {
  return expiresAt === null ? 'never expires' : `expires ${when(expiresAt)}`
}

/** @param {Record<string, any>} values */
function limitsIn(values) {
  return Object.fromEntries(LIMITS.map(({ name }) => [name, values[name] ?? null]))
}

/** @param {Row} row */
function limitsOf(row) {
  const set = [
    [row.requests_per_minute, 'requests a minute'],
    [row.tokens_per_minute, 'tokens a minute'],
    [row.concurrent_requests, 'at the same time'],
  ].filter(([limit]) => limit !== null)
  const perMinute = set.map(([limit, what]) => `${number(limit)} ${what}`)
  return [...perMinute, ...quotasText(row)].join(', ') || 'none of its own'
}

/** @param {Row} limits */
function limitsText({
  requests_per_minute: requests,
  tokens_per_minute: tokens,
  monthly_tokens: month,
}) {
  const limit = (/** @type {number} */ value, /** @type {string} */ what) =>
    value === 0 ? `no limit of ${what}` : `${number(value)} ${what}`
  return `Limits of each key: ${limit(requests, 'requests a minute')}, ${limit(tokens, 'tokens a minute')}; of each organization: ${limit(month, 'tokens a month')}.`
}
