import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

import type { Redis } from 'ioredis'

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

/** Stores sessions in Redis under digests: read access to Redis does not permit a sign-in. */
export function openAdminSessions(redis: Redis, prefix: string): AdminSessions {
  const sessionKey = (secret: string): string => `${prefix}:admin:session:${digestOf(secret)}`
  return {
    async open(session) {
      const secret = randomBytes(32).toString('base64url')
      await redis.set(sessionKey(secret), JSON.stringify(session), 'EX', SESSION_SECONDS)
      return secret
    },
    async find(secret) {
      if (!SECRET.test(secret)) return undefined
      const found = await redis.get(sessionKey(secret))
      return found === null ? undefined : (JSON.parse(found) as AdminSession)
    },
    async close(secret) {
      await redis.del(sessionKey(secret))
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
