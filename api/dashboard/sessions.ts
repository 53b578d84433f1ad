import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'

import type { Redis } from 'ioredis'

/** Somebody who has signed in to the administration pages with a browser. */
export interface AdminSession {
  /** What the page calls them. */
  readonly name: string
  /** Who they are to the user server; absent for the admin token. */
  readonly userId?: string
  /** The digest of what their password is kept as: another password ends the sessions of the old one. */
  readonly passwordDigest?: string
  /** The digest of the admin token that was given: a new token ends the sessions of the old one. */
  readonly tokenDigest?: string
}

/** The sessions of the administration pages, which all API processes know. */
export interface AdminSessions {
  /** Resolves with the secret that the browser keeps. */
  open(session: AdminSession): Promise<string>
  find(secret: string): Promise<AdminSession | undefined>
  close(secret: string): Promise<void>
}

/** A working day; longer than that nobody should find a page open. */
export const SESSION_SECONDS = 12 * 3600
const SECRET = /^[\w-]{43}$/

/** Keeps sessions in Redis, under digests: who reads Redis cannot sign in with what is there. */
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

/** The digest under which a secret is compared and kept. */
export function digestOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64url')
}

/** Compares secrets in a time that tells nothing of where they differ. */
export function equals(given: string, expected: string): boolean {
  return timingSafeEqual(Buffer.from(digestOf(given)), Buffer.from(digestOf(expected)))
}
