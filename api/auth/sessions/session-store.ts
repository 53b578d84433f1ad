import { randomBytes, randomUUID } from 'node:crypto'

import { eq, getTableColumns, sql, type WithSubquery } from 'drizzle-orm'

import { type AuditEntry, describeAudit, type SecurityEvent } from '#api/auth/audit/audit-log.ts'
import { randomSecret, sha256 } from '#api/auth/secrets.ts'
import type { Store } from '#api/auth/store.ts'
import { type Parts, readParts, selectParts } from '#api/auth/users/user-parts-store.ts'
import { prepared } from '#shared/db/client.ts'
import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import { SEED_BYTES } from './rotation-store.ts'
import { addProof, SESSIONS_MAX, USER_AGENT_CHARACTERS_MAX } from './sessions.ts'

/** A session that has just been opened. */
export interface OpenedSession {
  /** The row after the statement. */
  readonly user: UserRow
  readonly parts: Parts
  readonly session: SessionRow
  readonly refreshToken: string
  /** The entry written to the audit log, if any. */
  readonly event: SecurityEvent | undefined
}

/**
 * Opens a session in one round trip: the session, its first refresh token, the time of the user's
 * sign-in and, if given, the entry of the audit log. The statement is atomic, so an ordinary
 * sign-in needs no transaction. Undefined when there is no such user, or the password hash has
 * changed: a password that was changed in between proves nothing.
 */
export async function openSession(
  store: Store,
  start: {
    readonly userId: string
    readonly proof: { readonly method: string; readonly provider?: string }
    readonly userAgent: string
    readonly ip: string
    readonly audit?: Omit<AuditEntry, 'ip'> | undefined
    /** The session is opened only if this is still the user's password. */
    readonly passwordHash?: string | undefined
  },
): Promise<OpenedSession | undefined> {
  const at = store.now()
  const session = newSession(start, at)
  const refreshToken = randomSecret()
  const audit = start.audit && describeAudit({ ...start.audit, ip: start.ip }, at)
  const statement =
    audit === undefined
      ? prepared(store.db, 'open_session', (name) => prepareOpening(store, name))
      : prepared(store.db, 'open_session_audited', (name) => prepareAuditedOpening(store, name))
  const [row] = await statement.execute({
    userId: start.userId,
    at: at.toISOString(),
    ip: start.ip,
    passwordHash: start.passwordHash ?? null,
    sessionId: session.id,
    aal: session.aal,
    amr: JSON.stringify(session.amr),
    userAgent: session.userAgent,
    tokenSha256: sha256(refreshToken),
    seed: randomBytes(SEED_BYTES),
    auditId: randomUUID(),
    payload: JSON.stringify(audit?.payload),
  })
  if (row === undefined) return undefined
  const { identities, factors, ...user } = row
  const parts = readParts(store.tables, { identities, factors })
  return { user, parts, session, refreshToken, event: audit?.event }
}

function prepareAuditedOpening(store: Store, name: string) {
  const audited = store.db.$with('audited', {}).as(sql`
    insert into ${store.tables.auditLog} (id, payload, ip_address, created_at)
    select ${sql.placeholder('auditId')}::uuid, ${sql.placeholder('payload')}::jsonb,
      ${sql.placeholder('ip')}, ${sql.placeholder('at')}::timestamptz
    from opened`)
  return prepareOpening(store, name, [audited])
}

function prepareOpening({ db, tables }: Store, name: string, more: readonly WithSubquery[] = []) {
  const { sessions, refreshTokens, users } = tables
  const given = (value: string) => sql`${sql.placeholder(value)}`
  const now = sql`${given('at')}::timestamptz`
  // A password change holds the lock, so the newest version of the row is compared.
  const locked = db.$with('locked', {}).as(sql`
    select id from ${users} where id = ${given('userId')}
      and (${given('passwordHash')}::text is null or password_hash = ${given('passwordHash')}::text)
    for no key update`)
  const opened = db.$with('opened', {}).as(sql`
    insert into ${sessions} (id, user_id, aal, amr, user_agent, ip, created_at, updated_at)
    select ${given('sessionId')}::uuid, id, ${given('aal')}, ${given('amr')}::jsonb,
      ${given('userAgent')}, ${given('ip')}, ${now}, ${now}
    from locked returning id`)
  const issued = db.$with('issued', {}).as(sql`
    insert into ${refreshTokens} (session_id, token_sha256, seed, created_at)
    select id, ${given('tokenSha256')}, ${given('seed')}, ${now} from opened`)
  // The statement does not see the new session, so one less of the others is kept.
  const ended = db.$with('ended', {}).as(sql`
    delete from ${sessions} where id in (
      select id from ${sessions} where user_id = (select id from locked)
      order by coalesce(refreshed_at, created_at) desc offset ${SESSIONS_MAX - 1})`)
  return db
    .with(locked, opened, issued, ended, ...more)
    .update(users)
    .set({ lastSignInAt: now, updatedAt: now })
    .where(eq(users.id, sql`(select id from locked)`))
    .returning({ ...getTableColumns(users), ...selectParts(tables) })
    .prepare(name)
}

function newSession(
  start: {
    readonly userId: string
    readonly proof: { readonly method: string; readonly provider?: string }
    readonly userAgent: string
    readonly ip: string
  },
  at: Date,
): SessionRow {
  return {
    id: randomUUID(),
    userId: start.userId,
    aal: 'aal1',
    amr: addProof([], start.proof, at),
    factorId: null,
    userAgent: start.userAgent.slice(0, USER_AGENT_CHARACTERS_MAX),
    ip: start.ip,
    createdAt: at,
    updatedAt: at,
    refreshedAt: null,
    tag: null,
  }
}
