import { createHash, randomBytes, randomUUID } from 'node:crypto'

import { desc, eq, getTableColumns, sql } from 'drizzle-orm'

import type { SecurityEvent } from '#api/auth/audit/audit-log.ts'
import { sha256 } from '#api/auth/secrets.ts'
import type { Store } from '#api/auth/store.ts'
import {
  type JsonRow,
  type Parts,
  readJsonRow,
  readParts,
  selectParts,
} from '#api/auth/users/user-parts-store.ts'
import { prepared } from '#shared/db/client.ts'
import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import { USER_AGENT_CHARACTERS_MAX } from './sessions.ts'

/** Circumstances of a rotation. */
export interface RotationOrigin {
  readonly userAgent: string
  readonly ip: string
  /** Rotations of one session in an hour; 0 sets no limit. */
  readonly perHourMax: number
}

/** A refresh token that was exchanged for its child. */
export interface Rotated {
  readonly user: UserRow
  readonly parts: Parts
  readonly session: SessionRow
  readonly refreshToken: string
  /** The entry that the statement wrote to the audit log. */
  readonly event: SecurityEvent
}

/**
 * Exchanges the valid refresh token of a user who may sign in, in one statement: revokes it, issues
 * its child, touches the session and writes to the audit log. Undefined, without any effect, when
 * the refresh token or the user is in another state, or the session was refreshed too often.
 */
export async function rotateValidToken(
  store: Store,
  presented: string,
  origin: RotationOrigin,
): Promise<Rotated | undefined> {
  const at = store.now()
  const { ip, perHourMax } = origin
  const seed = randomBytes(SEED_BYTES)
  const refreshToken = deriveChild(presented, seed)
  const userAgent = origin.userAgent.slice(0, USER_AGENT_CHARACTERS_MAX)
  const [row] = await prepared(store.db, 'rotate_refresh_token', (name) =>
    prepareRotation(store, name),
  ).execute({
    seed,
    userAgent,
    ip,
    perHourMax,
    at: at.toISOString(),
    refreshedId: randomUUID(),
    revokedId: randomUUID(),
    presentedSha256: sha256(presented),
    childSha256: sha256(refreshToken),
  })
  if (row === undefined) return undefined
  const { user } = row
  const locked = readJsonRow(store.tables.sessions, row.session)
  const session = { ...locked, refreshedAt: at, updatedAt: at, userAgent, ip }
  const event = { action: 'token_refreshed', logType: 'token', traits: {} } as const
  const parts = readParts(store.tables, row)
  return { user, parts, session, refreshToken, event: { ...event, actorId: user.id, ip, at } }
}

/** The refresh token derived from a parent and a seed. */
export function deriveChild(parent: string, seed: Buffer): string {
  const digest = createHash('sha256').update(seed).update(parent).digest()
  return digest.subarray(0, 16).toString('base64url')
}

/** Length of a seed. */
export const SEED_BYTES = 32

/** Seconds until the limit of rotations permits the next one of a session. */
export async function secondsToRotation(
  { db, tables, now }: Store,
  sessionId: string,
  perHourMax: number,
): Promise<number> {
  const { refreshTokens } = tables
  if (perHourMax === 0) return 0
  const [oldest] = await db
    .select({ createdAt: refreshTokens.createdAt })
    .from(refreshTokens)
    .where(eq(refreshTokens.sessionId, sessionId))
    .orderBy(desc(refreshTokens.id))
    .offset(perHourMax)
    .limit(1)
  if (oldest === undefined) return 0
  return Math.max(0, (oldest.createdAt.getTime() + HOUR_MS - now().getTime()) / 1000)
}

const HOUR_MS = 3_600_000

/**
 * The session is locked before its refresh token, as everywhere. A request that waited for the lock
 * finds the refresh token revoked, because an update reads the newest version of a row, and returns
 * nothing.
 */
function prepareRotation({ db, tables }: Store, name: string) {
  const { sessions, refreshTokens, users, auditLog } = tables
  const given = (value: string) => sql`${sql.placeholder(value)}`
  const now = sql`${given('at')}::timestamptz`
  const locked = db.$with('locked', {}).as(sql`
    select s.* from ${sessions} s
    where s.id = (
      select session_id from ${refreshTokens} where token_sha256 = ${given('presentedSha256')}
    ) for update`)
  const revoked = db.$with('revoked', {}).as(sql`
    update ${refreshTokens} t set revoked_at = ${now}
    from locked join ${users} u on u.id = locked.user_id
    where t.session_id = locked.id and t.token_sha256 = ${given('presentedSha256')}
      and t.revoked_at is null and u.deleted_at is null
      and case when ${given('perHourMax')}::int = 0 then true else coalesce((
        select r.created_at <= ${now} - interval '1 hour' from ${refreshTokens} r
        where r.session_id = locked.id order by r.id desc offset ${given('perHourMax')}::int limit 1
      ), true) end
      and (u.banned_until is null or u.banned_until <= ${now})
    returning t.id, t.session_id, locked.user_id`)
  const issued = db.$with('issued', {}).as(sql`
    insert into ${refreshTokens} (session_id, token_sha256, seed, parent_id, created_at)
    select session_id, ${given('childSha256')}, ${given('seed')}, id, ${now} from revoked`)
  const touched = db.$with('touched', {}).as(sql`
    update ${sessions} s set refreshed_at = ${now}, updated_at = ${now},
      user_agent = ${given('userAgent')}, ip = ${given('ip')}
    from revoked where s.id = revoked.session_id`)
  const audited = db.$with('audited', {}).as(sql`
    insert into ${auditLog} (id, payload, ip_address, created_at)
    select entry.id, jsonb_strip_nulls(jsonb_build_object(
        'actor_id', u.id, 'actor_username', coalesce(u.phone, u.email, ''),
        'actor_name', u.user_metadata -> 'full_name', 'actor_via_sso', false,
        'action', entry.action, 'log_type', 'token')), ${given('ip')}, ${now}
    from revoked join ${users} u on u.id = revoked.user_id
    cross join (values (${given('refreshedId')}::uuid, 'token_refreshed'),
      (${given('revokedId')}::uuid, 'token_revoked')) entry (id, action)`)
  return db
    .with(locked, revoked, issued, touched, audited)
    .select({
      user: getTableColumns(users),
      // The row at the time when the lock was acquired.
      session: sql<JsonRow>`row_to_json(locked)`,
      ...selectParts(tables),
    })
    .from(sql`revoked`)
    .innerJoin(sql`locked`, sql`locked.id = revoked.session_id`)
    .innerJoin(users, sql`${users.id} = revoked.user_id`)
    .prepare(name)
}
