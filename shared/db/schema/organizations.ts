import { integer, primaryKey, smallint, text, uuid } from 'drizzle-orm/pg-core'

import { authTables } from './auth.ts'
import { bytea, moment, tableCreator, whole } from './columns.ts'
import { quotaColumns } from './quotas.ts'

/** Organizations, members and API keys, under the configured table prefix, with the users. */
export function organizationTables(namespace: string) {
  const table = tableCreator(namespace)
  const organizations = table('organizations', {
    id: text('id').primaryKey(),
    name: text('name').notNull(),
    personalUserId: uuid('personal_user_id').unique(),
    /** Null for organizations of the operator and for a user's own organization. */
    createdBy: uuid('created_by'),
    createdAt: moment('created_at').notNull().defaultNow(),
    deletedAt: moment('deleted_at'),
    /** Days for which stored content is kept; 0 stores nothing, null follows the installation. */
    retentionDays: integer('retention_days'),
    ...quotaColumns(),
  })
  const members = table(
    'organization_members',
    {
      organizationId: text('organization_id').notNull(),
      userId: uuid('user_id').notNull(),
      role: text('role', { enum: ['owner', 'admin', 'member'] }).notNull(),
      createdAt: moment('created_at').notNull().defaultNow(),
    },
    (t) => [primaryKey({ columns: [t.organizationId, t.userId] })],
  )
  const apiKeys = table('api_keys', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    name: text('name').notNull(),
    secretSha256: bytea('secret_sha256').notNull().unique(),
    prefix: text('prefix').notNull(),
    scopes: text('scopes').array(),
    modelIds: text('model_ids').array(),
    requestsPerMinute: whole('requests_per_minute'),
    tokensPerMinute: whole('tokens_per_minute'),
    concurrentJobs: whole('concurrent_jobs'),
    ...quotaColumns(),
    createdBy: uuid('created_by'),
    createdAt: moment('created_at').notNull().defaultNow(),
    expiresAt: moment('expires_at'),
    revokedAt: moment('revoked_at'),
    lastUsedAt: moment('last_used_at'),
  })
  const invitations = table('organization_invitations', {
    id: text('id').primaryKey(),
    organizationId: text('organization_id').notNull(),
    // Either `email` or `userId` is set.
    email: text('email'),
    userId: uuid('user_id'),
    role: text('role', { enum: ['owner', 'admin', 'member'] }).notNull(),
    invitedBy: text('invited_by').notNull(),
    createdAt: moment('created_at').notNull().defaultNow(),
    expiresAt: moment('expires_at').notNull(),
    acceptedAt: moment('accepted_at'),
    acceptedBy: uuid('accepted_by'),
    endedAt: moment('ended_at'),
    endedAs: text('ended_as', { enum: ['revoked', 'declined'] }),
  })
  // Links an organization to its user: the keys of a user's own organization depend on that user.
  const { users } = authTables(namespace)
  return { organizations, members, apiKeys, invitations, storedBytes: storedBytes(table), users }
}

/** Bytes of stored contents in several parts, which triggers count. */
function storedBytes(table: ReturnType<typeof tableCreator>) {
  return table(
    'stored_bytes',
    {
      organizationId: text('organization_id').notNull(),
      part: smallint('part').notNull(),
      bytes: whole('bytes').notNull(),
    },
    (t) => [primaryKey({ columns: [t.organizationId, t.part] })],
  )
}

export type OrganizationTables = ReturnType<typeof organizationTables>
