import { Section } from './sections.js'
import { html, number, pageUrl, part, place, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

const administrator = 'administrator'
const pathOf = (/** @type {Row} */ row, path = '') => `users/${part(row.id)}${path}`
const isBanned = (/** @type {Row} */ row) => new Date(row.banned_until ?? 0) > new Date()

/** All users, or the sessions, factors and organizations of one. */
export function sections() {
  const user = place.params.get('user')
  if (user === null) return html`<${Section} ...${LIST} />`
  const list = { ...LIST, title: 'User', path: 'users', filters: undefined, actions: [] }
  return html`<${Section} ...${list} path=${`users?query=${part(user)}`} />
    ${PARTS.map((options) => html`<${Section} key=${options.title} ...${options} path=${`users/${part(user)}/${options.path}`} />`)}`
}

/** @type {import('./sections.js').SectionOptions} */
const LIST = {
  title: 'All users',
  path: 'users',
  filters: [{ name: 'query', label: 'Email address, telephone number, name or id' }],
  empty: 'No user matches.',
  rowName: (row) => row.email ?? row.phone ?? row.id,
  columns: [
    {
      label: 'User',
      show: ({ id, email, phone, is_anonymous: isAnonymous }) => ({
        text: email ?? phone ?? (isAnonymous ? 'anonymous' : id),
        note: id,
        href: pageUrl('users', { user: id }),
      }),
    },
    { label: 'Role', show: (row) => ({ text: row.role, note: row.console_role ?? '' }) },
    {
      label: 'State',
      show: (row) =>
        isBanned(row)
          ? { text: 'banned', note: `until ${when(row.banned_until)}`, tone: 'bad' }
          : row.confirmed_at === null
            ? { text: row.invited_at === null ? 'unconfirmed' : 'invited', tone: 'warn' }
            : 'active',
    },
    { label: 'Factors', isNumber: true, show: (row) => number(row.factors) },
    { label: 'Sessions', isNumber: true, show: (row) => number(row.sessions) },
    { label: 'Last sign-in', show: (row) => when(row.last_sign_in_at) },
  ],
  actions: [
    {
      label: 'Invite',
      role: administrator,
      method: 'POST',
      path: () => 'users/invite',
      question: 'The user gets a mail with a link that confirms the address.',
      fields: [{ name: 'email', label: 'Email address', kind: 'email' }],
      body: (values) => values,
      done: 'The invitation is on its way.',
    },
  ],
  rowActions: [
    {
      label: 'Ban',
      role: administrator,
      method: 'POST',
      isDangerous: true,
      path: (row) => pathOf(row, '/ban'),
      isOffered: (row) => !isBanned(row),
      question: 'The user cannot sign in, and the keys of their own organization stop working.',
      fields: [{ name: 'hours', label: 'Hours', kind: 'number', value: () => '24' }],
      body: (values) => values,
      done: 'The user is banned.',
    },
    {
      label: 'Unban',
      role: administrator,
      method: 'POST',
      isOffered: isBanned,
      path: (row) => pathOf(row, '/unban'),
      question: 'The user can sign in again.',
      done: 'The ban is lifted.',
    },
    {
      label: 'Reset factors',
      role: administrator,
      method: 'DELETE',
      isDangerous: true,
      path: (row) => pathOf(row, '/factors'),
      isOffered: (row) => row.factors > 0,
      question: 'All second factors are removed: make sure that it is the user who asks for it.',
      done: 'The second factors are removed.',
    },
    {
      label: 'End sessions',
      role: administrator,
      method: 'DELETE',
      path: (row) => pathOf(row, '/sessions'),
      isOffered: (row) => row.sessions > 0,
      question: 'The user has to sign in again everywhere.',
      done: 'The sessions are ended.',
    },
    {
      label: 'Console role',
      role: administrator,
      method: 'POST',
      path: (row) => pathOf(row, '/console-role'),
      question:
        'A viewer reads this console, an operator also acts on queues, jobs, webhooks and models, an administrator on everything.',
      fields: [
        {
          name: 'role',
          label: 'Role',
          kind: 'select',
          options: ['none', 'viewer', 'operator', 'administrator'],
          value: (row) => row.console_role ?? 'none',
        },
      ],
      body: (values) => values,
      done: 'The role is changed.',
    },
  ],
}

/** @type {readonly import('./sections.js').SectionOptions[]} */
const PARTS = [
  {
    title: 'Sessions',
    path: 'sessions',
    empty: 'No session.',
    rowName: (row) => row.id,
    columns: [
      { label: 'Level', show: (row) => row.aal },
      { label: 'Network', show: (row) => row.ip ?? '' },
      { label: 'Browser', show: (row) => row.user_agent ?? '' },
      { label: 'Since', show: (row) => when(row.created_at) },
      { label: 'Last use', show: (row) => when(row.refreshed_at ?? row.created_at) },
    ],
  },
  {
    title: 'Second factors',
    path: 'factors',
    empty: 'No second factor.',
    rowName: (row) => row.friendly_name,
    columns: [
      { label: 'Kind', show: (row) => row.factor_type },
      { label: 'Name', show: (row) => row.friendly_name },
      { label: 'State', show: (row) => row.status },
      { label: 'Since', show: (row) => when(row.created_at) },
    ],
  },
  {
    title: 'Organizations',
    path: 'organizations',
    empty: 'No organization.',
    rowName: (row) => row.name,
    columns: [
      {
        label: 'Name',
        show: ({ id, name }) => ({
          text: name,
          note: id,
          href: pageUrl('organizations', { organization: id }),
        }),
      },
      { label: 'Role', show: (row) => row.role },
    ],
  },
]
