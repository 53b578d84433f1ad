import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

import type { Redis } from 'ioredis'

import { systemClock } from '#shared/clock.ts'

/** A signed-in session of the console. */
export interface AdminSession {
  /** The displayed name. */
  readonly name: string
  /** The user id; absent for the admin token. */
  readonly userId?: string
  /** The session of the user server that this one ends with. */
  readonly sessionId?: string
  /** Whether a second factor was proven at the sign-in. */
  readonly isProven?: boolean
  /** A digest of the password hash: a password change ends the session. */
  readonly passwordDigest?: string
  /** A digest of the admin token: a new token ends the session. */
  readonly tokenDigest?: string
}

/** The sessions of the console, shared by all API processes. */
export interface AdminSessions {
  /** Resolves with the secret for the cookie. */
  open(session: AdminSession): Promise<string>
  find(secret: string): Promise<AdminSession | undefined>
  close(secret: string): Promise<void>
}

/** A working day, which limits how long an unattended page stays signed in. */
export const SESSION_SECONDS = 12 * 3600
const SECRET = /^[\w-]{43}$/

/** How long a process admits a session without Redis while Redis is unavailable. */
const KEPT_MS = 900_000
const KEPT_MAX = 100

interface KeptSession {
  readonly session: AdminSession
  readonly keptAtMs: number
  /** Redis did not store it. */
  readonly isLocal: boolean
}

/**
 * Stores sessions in Redis under digests: read access to Redis does not permit a sign-in. While
 * Redis is unreachable or full, each process admits the sessions that it has opened or seen lately,
 * because the console is needed then.
 */
export function openAdminSessions(
  redis: Redis,
  prefix: string,
  clock = systemClock,
): AdminSessions {
  const kept = new Map<string, KeptSession>()
  const sessionKey = (digest: string): string => `${prefix}:admin:session:${digest}`
  const keep = (digest: string, session: AdminSession, isLocal: boolean): void => {
    kept.delete(digest)
    kept.set(digest, { session, isLocal, keptAtMs: clock.monotonic() })
    const [oldest = ''] = kept.keys()
    if (kept.size > KEPT_MAX) kept.delete(oldest)
  }
  return {
    async open(session) {
      const secret = randomBytes(32).toString('base64url')
      const digest = digestOf(secret)
      const stored = redis.set(sessionKey(digest), JSON.stringify(session), 'EX', SESSION_SECONDS)
      const isLocal = await stored.then(
        () => false,
        () => true,
      )
      keep(digest, session, isLocal)
      return secret
    },
    async find(secret) {
      if (!SECRET.test(secret)) return undefined
      const digest = digestOf(secret)
      const known = kept.get(digest)
      const isFresh = known !== undefined && clock.monotonic() - known.keptAtMs < KEPT_MS
      if (isFresh && known.isLocal) return known.session
      let found: string | null
      try {
        found = await redis.get(sessionKey(digest))
      } catch {
        return isFresh ? known.session : undefined
      }
      if (found === null) {
        kept.delete(digest)
        return undefined
      }
      const session = JSON.parse(found) as AdminSession
      keep(digest, session, false)
      return session
    },
    async close(secret) {
      const digest = digestOf(secret)
      kept.delete(digest)
      await redis.del(sessionKey(digest))
    },
  }
}

/** The digest under which a secret is compared and stored. */
export function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64url')
}

/** Compares secrets in constant time. */
export function equals(given: string, expected: string): boolean {
  return timingSafeEqual(Buffer.from(digestOf(given)), Buffer.from(digestOf(expected)))
}
