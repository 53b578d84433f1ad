import { createHash, timingSafeEqual } from 'node:crypto'

import type { FastifyReply, FastifyRequest } from 'fastify'

/** Who may see the dashboard. */
export interface DashboardGuard {
  /** Opens it besides administrators; empty for none. */
  readonly adminToken: string
  /** Whether an access token of the user server carries an administrator's role. */
  isAdministrator(accessToken: string): Promise<boolean>
}

const BASIC = /^Basic ([A-Za-z0-9+/=]{1,2048})$/i
const BEARER = /^Bearer (\S{1,8192})$/i

/**
 * Admits administrators: the admin token as a bearer or as the password of the browser's own sign-in,
 * or an administrator's access token. Everyone else gets 401, and 403 with a token that is not enough.
 */
export function createDashboardHook(guard: DashboardGuard) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const secret = secretOf(request.headers.authorization)
    if (secret === undefined) {
      reply.header('www-authenticate', 'Basic realm="Millrace", charset="UTF-8"')
      return reply
        .code(401)
        .type('text/plain')
        .send('Sign in with the admin token as the password.')
    }
    if (guard.adminToken !== '' && equals(secret, guard.adminToken)) return
    if (await guard.isAdministrator(secret)) return
    return reply.code(403).type('text/plain').send('This needs the role of an administrator.')
  }
}

function secretOf(authorization: string | undefined): string | undefined {
  const bearer = BEARER.exec(authorization ?? '')
  if (bearer !== null) return bearer[1]
  const basic = BASIC.exec(authorization ?? '')
  if (basic === null) return undefined
  const pair = Buffer.from(basic[1] as string, 'base64').toString('utf8')
  const password = pair.slice(pair.indexOf(':') + 1)
  return password === '' ? undefined : password
}

function equals(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(expected))
}
