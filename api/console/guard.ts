import type { FastifyReply, FastifyRequest } from 'fastify'

import { clientOf } from '#api/http/request.ts'
import type { GuessLimiter } from '#api/limits/guess-limiter.ts'
import { prefersHtml } from '#api/pages/html.ts'
import { ServiceError } from '#shared/errors.ts'

import { SESSION_COOKIE } from './cookies.ts'
import { type AdminSession, type AdminSessions, digestOf, equals } from './sessions.ts'

/** The credentials that open the console. */
export interface DashboardGuard {
  /** The admin token; empty disables it. */
  readonly adminToken: string
  /** Whether an access token of the user server belongs to a current administrator. */
  isAdministrator(accessToken: string): Promise<boolean>
  /** Whether a user still has an administrator's role and the same password. */
  isAdministratorNow(userId: string, passwordDigest: string | undefined): Promise<boolean>
  readonly sessions: AdminSessions
  /** Delays clients that guess the admin token. */
  readonly guesses: GuessLimiter
}

/** Renders the sign-in page instead of the requested one. */
export type ShowSignIn = (request: FastifyRequest, reply: FastifyReply) => FastifyReply

const BASIC = /^Basic ([A-Za-z0-9+/=]{1,2048})$/i
const BEARER = /^Bearer (\S{1,8192})$/i

/**
 * Admits administrators: by the session cookie, the admin token as a bearer or Basic password, or
 * an administrator's access token. Other requests get 401, and 403 with an insufficient credential.
 * Browsers get the sign-in page as the body of the 401. Refused credentials count as sign-in
 * attempts.
 */
export function createDashboardHook(guard: DashboardGuard, showSignIn: ShowSignIn) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    reply.header('cache-control', 'no-store')
    const secret = secretOf(request.headers.authorization)
    if (secret === undefined) {
      if ((await sessionOf(guard, request)) !== undefined) return undefined
      reply.header('www-authenticate', challengeOf(request))
      if (prefersHtml(request.headers.accept)) return showSignIn(request, reply.code(401))
      return reply
        .code(401)
        .type('text/plain')
        .send('Sign in with the admin token as the password.')
    }
    const seconds = await judge(guard, secret, request.ip)
    if (seconds === undefined) return undefined
    if (seconds > 0) {
      reply.code(429).header('retry-after', seconds).type('text/plain')
      return reply.send(tooManyAttempts(seconds))
    }
    return reply.code(403).type('text/plain').send('This needs the role of an administrator.')
  }
}

/** Undefined for an administrator; otherwise the seconds that the client must wait. */
async function judge(
  guard: DashboardGuard,
  secret: string,
  address: string,
): Promise<number | undefined> {
  // The signature of an access token cannot be guessed, so it is not counted.
  if (await guard.isAdministrator(secret)) return undefined
  const verdict = await judgeAdminToken(guard, secret, address)
  if (verdict.kind === 'limited') return verdict.seconds
  return verdict.isRight ? undefined : 0
}

/** Compares a secret with the admin token; failures count and delay the next ones. */
export async function judgeAdminToken(
  guard: DashboardGuard,
  secret: string,
  address: string,
): Promise<
  | { readonly kind: 'judged'; readonly isRight: boolean }
  | { readonly kind: 'limited'; readonly seconds: number }
> {
  // Without an admin token there is nothing to guess.
  if (guard.adminToken === '') return { kind: 'judged', isRight: false }
  try {
    const isRight = await guard.guesses.judge(
      { kind: 'admin_token', account: '', network: clientOf(address) },
      async () => isAdminToken(guard, secret),
      (passed) => passed,
    )
    return { kind: 'judged', isRight }
  } catch (thrown) {
    if (!(thrown instanceof ServiceError) || thrown.kind !== 'rateLimited') throw thrown
    return { kind: 'limited', seconds: thrown.retryAfterSeconds ?? 1 }
  }
}

/** The message for a client that has tried too often. */
export function tooManyAttempts(seconds: number): string {
  const wait = seconds < 60 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`
  return `Too many attempts. Try again in ${wait}.`
}

/** The valid session of a browser. */
export async function sessionOf(
  guard: DashboardGuard,
  request: FastifyRequest,
): Promise<AdminSession | undefined> {
  const session = await guard.sessions.find(request.cookies[SESSION_COOKIE] ?? '')
  if (session === undefined) return undefined
  const { tokenDigest, userId, passwordDigest } = session
  const isValid =
    userId === undefined
      ? guard.adminToken !== '' && tokenDigest === digestOf(guard.adminToken)
      : await guard.isAdministratorNow(userId, passwordDigest)
  return isValid ? session : undefined
}

function isAdminToken({ adminToken }: DashboardGuard, secret: string): boolean {
  return adminToken !== '' && equals(secret, adminToken)
}

// With `WWW-Authenticate: Basic` browsers would show their own dialog instead of the sign-in page.
function challengeOf({ headers }: FastifyRequest): string {
  const isBrowser = prefersHtml(headers.accept) || headers['sec-fetch-mode'] !== undefined
  return isBrowser ? 'Bearer realm="Millrace"' : 'Basic realm="Millrace", charset="UTF-8"'
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
