import { randomUUID } from 'node:crypto'

import { count, desc, or, type SQL } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import { containsText, textOfField } from '#shared/db/expressions.ts'
import type { AuditLogRow, Metadata, UserRow } from '#shared/db/schema/auth.ts'

/** The actions of the audit log, and the log type of each. */
const ACTIONS = {
  login: 'account',
  login_failed: 'account',
  hook_rejected: 'account',
  logout: 'account',
  invite_accepted: 'account',
  user_signedup: 'team',
  user_invited: 'team',
  user_deleted: 'team',
  token_refreshed: 'token',
  token_revoked: 'token',
  token_reuse_detected: 'token',
  user_modified: 'user',
  user_recovery_requested: 'user',
  user_confirmation_requested: 'user',
  user_repeated_signup: 'user',
  user_updated_password: 'user',
  user_reauthenticate_requested: 'user',
  identity_linked: 'user',
  identity_unlinked: 'user',
  passkey_created: 'user',
  passkey_updated: 'user',
  passkey_deleted: 'user',
  factor_in_progress: 'factor',
  factor_unenrolled: 'factor',
  challenge_created: 'factor',
  verification_attempted: 'factor',
  factor_deleted: 'factor',
  factor_updated: 'factor',
  mfa_code_login: 'factor',
  console_action: 'console',
} as const

/** The name of an action in the audit log. */
export type AuditAction = keyof typeof ACTIONS

/** One security event. */
export interface SecurityEvent {
  readonly action: AuditAction
  readonly logType: string
  /** The nil UUID when an administrator acts by role alone, and for accounts that do not exist. */
  readonly actorId: string
  readonly traits: Readonly<Record<string, unknown>>
  readonly ip: string
  /** The id of the request that caused it. */
  readonly requestId?: string | undefined
  readonly at: Date
}

/**
 * The actor: a user, an administrator by role, or an unauthenticated client that named an account.
 */
export type Actor =
  | { readonly kind: 'user'; readonly user: UserRow }
  | { readonly kind: 'stranger'; readonly name: string }
  | { readonly kind: 'admin'; readonly role: string }

const NIL_UUID = '00000000-0000-0000-0000-000000000000'

/** An event to be written to the audit log. */
export interface AuditEntry {
  readonly actor: Actor
  readonly action: AuditAction
  readonly traits?: Readonly<Record<string, unknown>>
  readonly ip: string
}

/** Appends to the audit log. */
export async function appendAudit(store: Store, entry: AuditEntry): Promise<SecurityEvent> {
  const now = store.now()
  const { payload, event } = describeAudit(entry, now)
  await store.db
    .insert(store.tables.auditLog)
    .values({ id: randomUUID(), payload, ipAddress: entry.ip, createdAt: now })
  return event
}

/** An entry of the audit log, as stored and as passed to listeners. */
export function describeAudit(
  entry: AuditEntry,
  at: Date,
): { readonly payload: Metadata; readonly event: SecurityEvent } {
  const { actor, action, traits = {}, ip } = entry
  const logType = ACTIONS[action]
  const described = describeActor(actor)
  const hasTraits = Object.keys(traits).length > 0
  return {
    payload: { ...described, action, log_type: logType, ...(hasTraits && { traits }) },
    event: { action, logType, actorId: described.actor_id, traits, ip, at },
  }
}

/** The searchable columns of the audit log. */
export const AUDIT_SCOPES = ['author', 'action', 'type'] as const

/** One page of the audit log, newest first. */
export async function listAudit(
  store: Store,
  page: {
    readonly offset: number
    readonly limit: number
    readonly search:
      | { readonly scope: (typeof AUDIT_SCOPES)[number]; readonly text: string }
      | undefined
  },
): Promise<{ entries: AuditLogRow[]; total: number }> {
  const { auditLog } = store.tables
  const matches = page.search && searchCondition(store, page.search)
  const [entries, [counted]] = await Promise.all([
    store.db
      .select()
      .from(auditLog)
      .where(matches)
      .orderBy(desc(auditLog.createdAt), desc(auditLog.id))
      .limit(page.limit)
      .offset(page.offset),
    store.db.select({ total: count() }).from(auditLog).where(matches),
  ])
  return { entries, total: counted?.total ?? 0 }
}

function searchCondition(
  store: Store,
  search: { readonly scope: (typeof AUDIT_SCOPES)[number]; readonly text: string },
): SQL | undefined {
  const { payload } = store.tables.auditLog
  const fields = {
    author: ['actor_username', 'actor_name'],
    action: ['action'],
    type: ['log_type'],
  }
  const parts = fields[search.scope].map((field) =>
    containsText(textOfField(payload, field), search.text),
  )
  return or(...parts)
}

function describeActor(actor: Actor): { actor_id: string } & Record<string, unknown> {
  if (actor.kind === 'admin') {
    return { actor_id: NIL_UUID, actor_username: actor.role, actor_via_sso: false }
  }
  if (actor.kind === 'stranger') {
    return { actor_id: NIL_UUID, actor_username: actor.name, actor_via_sso: false }
  }
  const { user } = actor
  const name = user.userMetadata.full_name
  return {
    actor_id: user.id,
    actor_username: user.phone ?? user.email ?? '',
    ...(typeof name === 'string' && { actor_name: name }),
    actor_via_sso: false,
  }
}
