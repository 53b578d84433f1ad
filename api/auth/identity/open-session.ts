import { randomBytes, randomUUID } from 'node:crypto'

import { eq, sql } from 'drizzle-orm'

import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import { authFailure } from '../errors.ts'
import { describeAudit, type AuditEntry, type SecurityEvent } from './audit-log.ts'
import { SEED_BYTES } from './refresh-tokens.ts'
import { randomSecret, sha256 } from './secrets.ts'
import { addProof, USER_AGENT_CHARACTERS_MAX } from './sessions.ts'
import type { Store } from './store.ts'

/** A signed-in period that has just begun. */
export interface OpenedSession {
  /** As the row is at this moment. */
  readonly user: UserRow
  readonly session: SessionRow
  readonly refreshToken: string
  /** What was written to the audit log; undefined when nothing was to be. */
  readonly event: SecurityEvent | undefined
}

/**
 * Opens a signed-in period in one round trip: the session, its first refresh token, the time of the
 * user's sign-in and, if given, the entry of the audit log. All of it or nothing, so that the usual
 * sign-in needs no transaction around it. Throws `user_not_found`.
 */
export async function openSession(
  store: Store,
  start: {
    readonly userId: string
    readonly proof: { readonly method: string; readonly provider?: string }
    readonly userAgent: string
    readonly ip: string
    readonly audit?: Omit<AuditEntry, 'ip'> | undefined
  },
): Promise<OpenedSession> {
  const { sessions, refreshTokens, users, auditLog } = store.tables
  const { db } = store
  const at = store.now()
  const now = sql`${at.toISOString()}::timestamptz`
  const session = newSession(start, at)
  const refreshToken = randomSecret()
  const opened = db.$with('opened', {}).as(sql`
    insert into ${sessions} (id, user_id, aal, amr, user_agent, ip, created_at, updated_at)
    select ${session.id}::uuid, id, ${session.aal}, ${JSON.stringify(session.amr)}::jsonb,
      ${session.userAgent}, ${session.ip}, ${now}, ${now}
    from ${users} where id = ${start.userId} returning id`)
  const issued = db.$with('issued', {}).as(sql`
    insert into ${refreshTokens} (session_id, token_sha256, seed, created_at)
    select id, ${sha256(refreshToken)}, ${randomBytes(SEED_BYTES)}, ${now} from opened`)
  const audit = start.audit && describeAudit({ ...start.audit, ip: start.ip }, at)
  const audited =
    audit &&
    db.$with('audited', {}).as(sql`
      insert into ${auditLog} (id, payload, ip_address, created_at)
      select ${randomUUID()}::uuid, ${JSON.stringify(audit.payload)}::jsonb, ${start.ip}, ${now}
      from opened`)
  const [user] = await db
    .with(opened, issued, ...(audited === undefined ? [] : [audited]))
    .update(users)
    .set({ lastSignInAt: at, updatedAt: at })
    .where(eq(users.id, start.userId))
    .returning()
  if (user === undefined) throw authFailure('user_not_found')
  return { user, session, refreshToken, event: audit?.event }
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
  }
}
