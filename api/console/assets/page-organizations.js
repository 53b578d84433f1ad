import { QUOTAS, quotasText } from './quotas.js'
import { Section } from './sections.js'
import { bytes, html, number, pageUrl, part, place, when } from './ui.js'

/** @typedef {import('./ui.js').Row} Row */

const administrator = 'administrator'

/** All organizations, or the members of one. */
export function sections() {
  const organization = place.params.get('organization')
  return organization === null
    ? html`<${Section} ...${LIST} />`
    : html`<${Section} ...${membersOf(organization)} />`
}

/** @type {import('./sections.js').SectionOptions} */
const LIST = {
  title: 'All organizations',
  path: 'organizations',
  filters: [{ name: 'query', label: 'Name, id or email address of its user' }],
  empty: 'No organization matches.',
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
    { label: 'Own of', show: (row) => row.personal_of ?? '' },
    { label: 'Members', isNumber: true, show: (row) => number(row.members) },
    {
      label: 'Keys',
      isNumber: true,
      show: ({ id, keys }) => ({ text: number(keys), href: pageUrl('keys', { organization: id }) }),
    },
    { label: 'Stored', isNumber: true, show: (row) => bytes(row.stored_bytes) },
    { label: 'Quotas', show: (row) => quotasText(row).join(', ') },
    { label: 'Created', show: (row) => when(row.created_at) },
  ],
  actions: [
    {
      label: 'Create',
      role: administrator,
      method: 'POST',
      path: () => 'organizations',
      question: 'Create an organization with a user as its owner.',
      fields: [
        { name: 'name', label: 'Name' },
        { name: 'owner_email', label: 'Email address of the owner', kind: 'email' },
      ],
      body: (values) => values,
      done: 'The organization is created.',
    },
  ],
  rowActions: [
    {
      label: 'Edit',
      role: administrator,
      method: 'PATCH',
      path: ({ id }) => `organizations/${part(id)}`,
      question: 'Change its name, and how long stored content is kept.',
      fields: [
        { name: 'name', label: 'Name', value: (row) => row.name },
        {
          name: 'days',
          label: 'Days of retention',
          kind: 'number',
          isOptional: true,
          hint: 'Empty follows the installation; 0 stores nothing.',
          value: (row) => String(row.retention_days ?? ''),
        },
      ],
      body: ({ name, days }) => ({ name, retention_days: days ?? null }),
      done: 'The organization is changed.',
    },
    {
      label: 'Quotas',
      role: administrator,
      method: 'POST',
      path: ({ id }) => `organizations/${part(id)}/quotas`,
      question: 'They apply to all keys and members together, within a minute of the change.',
      fields: QUOTAS.map((field) => ({
        ...field,
        kind: 'number',
        isOptional: true,
        hint: 'Empty uses the quota of the installation, if it has one.',
        value: (row) => String(row[field.name] ?? ''),
      })),
      body: (values) => Object.fromEntries(QUOTAS.map(({ name }) => [name, values[name] ?? null])),
      done: 'The quotas are changed.',
    },
    {
      label: 'Delete',
      role: administrator,
      method: 'DELETE',
      isDangerous: true,
      path: ({ id }) => `organizations/${part(id)}`,
      isOffered: (row) => row.personal_of === null,
      question: 'Its keys and memberships end; its usage and activities are kept.',
      done: 'The organization is deleted.',
    },
  ],
}

/** @param {string} organization @returns {import('./sections.js').SectionOptions} */
function membersOf(organization) {
  const path = `organizations/${part(organization)}/members`
  const pathOf = (/** @type {Row} */ row) => `${path}/${part(row.user_id)}`
  return {
    title: `Members of ${organization}`,
    path,
    empty: 'It has no members.',
    rowName: (row) => row.email ?? row.user_id,
    columns: [
      {
        label: 'User',
        show: ({ email, user_id: id }) => ({
          text: email ?? id,
          note: id,
          href: pageUrl('users', { user: id }),
        }),
      },
      { label: 'Role', show: (row) => row.role },
      { label: 'Since', show: (row) => when(row.created_at) },
    ],
    rowActions: [
      {
        label: 'Set role',
        role: administrator,
        method: 'PATCH',
        path: pathOf,
        question: 'An organization keeps at least one owner.',
        fields: [
          {
            name: 'role',
            label: 'Role',
            kind: 'select',
            options: ['owner', 'admin', 'member'],
            value: (row) => row.role,
          },
        ],
        body: (values) => values,
        done: 'The role is changed.',
      },
      {
        label: 'Remove',
        role: administrator,
        method: 'DELETE',
        path: pathOf,
        isDangerous: true,
        question: 'The user loses access to the organization.',
        done: 'The member is removed.',
      },
    ],
  }
}
