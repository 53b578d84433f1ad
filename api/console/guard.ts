import type { FastifyReply, FastifyRequest } from 'fastify'

import { clientOf } from '#api/http/request.ts'
import type { GuessLimiter } from '#api/limits/guess-limiter.ts'
import { prefersHtml } from '#api/pages/html.ts'
import { ServiceError } from '#shared/errors.ts'

import type { Administrator, ConsoleRole } from './access.ts'
import { SESSION_COOKIE } from './cookies.ts'
import { type AdminSession, type AdminSessions, digestOf, equals } from './sessions.ts'

/** The credentials that open the console. */
export interface ConsoleGuard {
  /** The admin token; empty disables it. */
  readonly adminToken: string
  /**
   * The user id of an access token of a current administrator, empty for a token without a user;
   * undefined for other tokens.
   */
  findAdministrator(accessToken: string): Promise<string | undefined>
  /** The current role of the user of a session; undefined when the session is no longer valid. */
  roleNow(session: AdminSession & { readonly userId: string }): Promise<ConsoleRole | undefined>
  /** Ends the session of the user server behind a session of the console. */
  endSession(session: AdminSession & { readonly userId: string }): Promise<void>
  readonly sessions: AdminSessions
  /** Delays clients that guess the admin token. */
  readonly guesses: GuessLimiter
}

/** Renders the sign-in page instead of the requested one. */
export type ShowSignIn = (request: FastifyRequest, reply: FastifyReply) => FastifyReply

/** The name under which the holder of the admin token acts. */
export const TOKEN_NAME = 'admin token'

const BASIC = /^Basic ([A-Za-z0-9+/=]{1,2048})$/i
const BEARER = /^Bearer (\S{1,8192})$/i

/**
 * Admits administrators: by the session cookie, the admin token as a bearer or Basic password, or
 * an administrator's access token. Other requests get 401, and 403 with an insufficient credential.
 * Browsers get the sign-in page as the body of the 401. Refused credentials count as sign-in
 * attempts.
 */
export function createConsoleHook(guard: ConsoleGuard, showSignIn: ShowSignIn) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    reply.header('cache-control', 'no-store')
    const secret = secretOf(request.headers.authorization)
    if (secret === undefined) {
      const administrator = await signedInOf(guard, request)
      if (administrator !== undefined) {
        request.context.administrator = administrator
        return undefined
      }
      reply.header('www-authenticate', challengeOf(request))
      if (prefersHtml(request.headers.accept)) return showSignIn(request, reply.code(401))
      return reply
        .code(401)
        .type('text/plain')
        .send('Sign in with the admin token as the password.')
    }
    const verdict = await judge(guard, secret, request.ip)
    if (typeof verdict !== 'number') {
      request.context.administrator = verdict
      return undefined
    }
    const seconds = verdict
    if (seconds > 0) {
      reply.code(429).header('retry-after', seconds).type('text/plain')
      return reply.send(tooManyAttempts(seconds))
    }
    return reply.code(403).type('text/plain').send('This needs the role of an administrator.')
  }
}

/** The administrator behind a secret; otherwise the seconds that the client must wait. */
async function judge(
  guard: ConsoleGuard,
  secret: string,
  address: string,
): Promise<number | Administrator> {
  const common = { role: 'administrator', credential: 'header' } as const
  // The signature of an access token cannot be guessed, so it is not counted.
  const userId = await guard.findAdministrator(secret)
  if (userId !== undefined) {
    return { ...common, name: 'access token', ...(userId !== '' && { userId }) }
  }
  const verdict = await judgeAdminToken(guard, secret, address)
  if (verdict.kind === 'limited') return verdict.seconds
  return verdict.isRight ? { ...common, name: TOKEN_NAME } : 0
}

/** Compares a secret with the admin token; failures count and delay the next ones. */
export async function judgeAdminToken(
  guard: ConsoleGuard,
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

/** The message for a client with too many attempts. */
export function tooManyAttempts(seconds: number): string {
  const wait = seconds < 60 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`
  return `Too many attempts. Try again in ${wait}.`
}

/** The administrator of a browser with a valid session. */
async function signedInOf(
  guard: ConsoleGuard,
  request: FastifyRequest,
): Promise<Administrator | undefined> {
  const session = await guard.sessions.find(request.cookies[SESSION_COOKIE] ?? '')
  if (session === undefined) return undefined
  const { tokenDigest, userId, name } = session
  if (userId !== undefined) {
    const role = await guard.roleNow({ ...session, userId })
    return role === undefined ? undefined : { role, name, userId, credential: 'session' }
  }
  const isValid = guard.adminToken !== '' && tokenDigest === digestOf(guard.adminToken)
  return isValid ? { role: 'administrator', name, credential: 'session' } : undefined
}

function isAdminToken({ adminToken }: ConsoleGuard, secret: string): boolean {
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
