import { randomBytes, randomUUID } from 'node:crypto'

import { eq, sql } from 'drizzle-orm'

import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import type { SecurityEvent } from './audit-log.ts'
import {
  deriveChild,
  SEED_BYTES,
  type RotationOptions,
  type RotationOutcome,
} from './refresh-tokens.ts'
import { sha256 } from './secrets.ts'
import { USER_AGENT_CHARACTERS_MAX } from './sessions.ts'
import type { Store } from './store.ts'

/**
 * The first row of the state table of `rotateRefreshToken`, in one round trip: a valid refresh token
 * of a user in good standing is exchanged, and written to the audit log. Undefined when anything is
 * unusual; nothing has happened then, and the step-by-step way finds out what.
 *
 * The session is locked before its refresh token is touched, as everywhere: whoever waited for the
 * lock finds the refresh token revoked when its turn comes, because an update looks at the newest
 * version of a row, and goes away with nothing.
 */
export async function rotateInOneStatement(
  store: Store,
  presented: string,
  options: RotationOptions,
): Promise<{ outcome: RotationOutcome; event: SecurityEvent } | undefined> {
  if (hasSessionRules(options)) return undefined
  const { sessions, refreshTokens, users, auditLog } = store.tables
  const at = store.now()
  const now = sql`${at.toISOString()}::timestamptz`
  const seed = randomBytes(SEED_BYTES)
  const refreshToken = deriveChild(presented, seed)
  const tokenSha256 = sha256(presented)
  const userAgent = options.userAgent.slice(0, USER_AGENT_CHARACTERS_MAX)
  const { rows } = await store.db.execute<{ session_id: string }>(sql`
    with locked as materialized (
      select s.id, s.user_id from ${sessions} s
      where s.id = (select session_id from ${refreshTokens} where token_sha256 = ${tokenSha256})
      for update
    ), revoked as (
      update ${refreshTokens} t set revoked_at = ${now}
      from locked join ${users} u on u.id = locked.user_id
      where t.session_id = locked.id and t.token_sha256 = ${tokenSha256}
        and t.revoked_at is null and u.deleted_at is null
        and (u.banned_until is null or u.banned_until <= ${now})
      returning t.id, t.session_id, locked.user_id
    ), issued as (
      insert into ${refreshTokens} (session_id, token_sha256, seed, parent_id, created_at)
      select session_id, ${sha256(refreshToken)}, ${seed}, id, ${now} from revoked
    ), touched as (
      update ${sessions} s
      set refreshed_at = ${now}, updated_at = ${now}, user_agent = ${userAgent}, ip = ${options.ip}
      from revoked where s.id = revoked.session_id
    ), audited as (
      insert into ${auditLog} (id, payload, ip_address, created_at)
      select ${randomUUID()}::uuid, jsonb_strip_nulls(jsonb_build_object(
          'actor_id', u.id, 'actor_username', coalesce(u.phone, u.email, ''),
          'actor_name', u.user_metadata -> 'full_name', 'actor_via_sso', false,
          'action', 'token_refreshed', 'log_type', 'token')), ${options.ip}, ${now}
      from revoked join ${users} u on u.id = revoked.user_id
    )
    select session_id from revoked`)
  const sessionId = rows[0]?.session_id
  if (sessionId === undefined) return undefined
  const loaded = await loadSession(store, sessionId)
  // Signed out in the meantime.
  if (loaded === undefined) return undefined
  const { user, session } = loaded
  const outcome = { kind: 'accepted', user, session, refreshToken, isRotated: true } as const
  const event = { action: 'token_refreshed', logType: 'token', traits: {} } as const
  return { outcome, event: { ...event, actorId: user.id, ip: options.ip, at } }
}

// Rules that end sessions need a look at other rows.
function hasSessionRules({ sessions }: RotationOptions): boolean {
  return (
    sessions.isSinglePerUser || sessions.timeboxSeconds > 0 || sessions.inactivityTimeoutSeconds > 0
  )
}

async function loadSession(
  store: Store,
  sessionId: string,
): Promise<{ user: UserRow; session: SessionRow } | undefined> {
  const { sessions, users } = store.tables
  const [row] = await store.db
    .select({ user: users, session: sessions })
    .from(sessions)
    .innerJoin(users, eq(users.id, sessions.userId))
    .where(eq(sessions.id, sessionId))
  return row
}
