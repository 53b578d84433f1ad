import type { FastifyRequest } from 'fastify'

import { findBindingSecret } from '#api/auth/external/browser-binding.ts'
import { chooseRedirect } from '#api/auth/redirects/redirect-url.ts'
import type { AccessTokenClaims } from '#api/auth/sessions/access-token.ts'
import { findAuthenticatedUser } from '#api/auth/sessions/authenticate-store.ts'
import { isBanned } from '#api/auth/users/user-store.ts'
import { networkOf, plainAddress } from '#api/http/request.ts'
import { ServiceError } from '#shared/errors.ts'

import type { AuthRequest, Caller } from './context.ts'
import { authFailure, invalid } from './errors.ts'
import type { AuthServices } from './services.ts'

/** The guards of the routing table. */
export type Guard = 'public' | 'user' | 'admin'

const BEARER = /^bearer (\S+)$/i
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const NIL_UUID = '00000000-0000-0000-0000-000000000000'

/** The access token of a request; undefined when there is none. */
function bearerOf(request: FastifyRequest): string | undefined {
  return BEARER.exec(request.headers.authorization ?? '')?.[1]
}

/** The claims of a bearer token, if there is one, on routes that require none. */
export async function findClaims(
  services: AuthServices,
  request: FastifyRequest,
): Promise<AccessTokenClaims | undefined> {
  const accessToken = bearerOf(request)
  if (accessToken === undefined) return undefined
  // Public routes are often called with a project key or an expired token.
  return services.accessTokens.verify(accessToken).catch(() => undefined)
}

/** Authenticates the caller, or throws. */
export async function admit(
  services: AuthServices,
  request: FastifyRequest,
  guard: Exclude<Guard, 'public'>,
): Promise<Caller> {
  const accessToken = bearerOf(request)
  if (accessToken === undefined) throw authFailure('no_authorization')
  const claims = await services.accessTokens.verify(accessToken)
  return guard === 'admin' ? admitAdmin(services, claims) : admitUser(services, claims)
}

/** Whether the claims belong to a current administrator. */
export async function isAdmin(
  services: AuthServices,
  claims: AccessTokenClaims | undefined,
): Promise<boolean> {
  if (claims === undefined || !hasAdminRole(services, claims.role)) return false
  try {
    await admitAdmin(services, claims)
    return true
  } catch (thrown) {
    if (thrown instanceof ServiceError) return false
    throw thrown
  }
}

/**
 * Project keys belong to no user and are valid by their signature. The access token of a user is
 * valid while the user may sign in, has the role, and has used the second factor if enrolled:
 * administration needs more than a password or an unexpired token.
 */
async function admitAdmin(services: AuthServices, claims: AccessTokenClaims): Promise<Caller> {
  if (!hasAdminRole(services, claims.role)) throw authFailure('not_admin')
  if (isOfSession(claims)) {
    const { user, session, parts } = await admitUser(services, claims)
    if (!hasAdminRole(services, user.role)) throw authFailure('not_admin')
    const hasFactor = parts.factors.some(({ status }) => status === 'verified')
    if (session?.aal !== 'aal2' && hasFactor) {
      const message = 'AAL2 session is required to administer when MFA is enabled.'
      throw authFailure('insufficient_aal', { message })
    }
  }
  return { kind: 'admin', role: claims.role as string, claims }
}

function hasAdminRole(services: AuthServices, role: unknown): boolean {
  return typeof role === 'string' && services.config.jwt.adminRoles.includes(role)
}

function isOfSession(claims: AccessTokenClaims): boolean {
  const sessionId = claims.session_id ?? ''
  return sessionId !== '' && sessionId !== NIL_UUID
}

async function admitUser(
  services: AuthServices,
  claims: AccessTokenClaims,
): Promise<Extract<Caller, { kind: 'user' }>> {
  const { sub = '', session_id: namedSession = '' } = claims
  if (sub === '') throw authFailure('bad_jwt', { message: 'invalid claim: missing sub claim' })
  if (!UUID.test(sub)) {
    const message = 'invalid claim: sub claim must be a UUID'
    throw authFailure('bad_jwt', { message, kind: 'invalidRequest' })
  }
  const hasSession = isOfSession(claims)
  const sessionId = hasSession && UUID.test(namedSession) ? namedSession : undefined
  const found = await findAuthenticatedUser(services.store, { userId: sub, sessionId })
  if (found === undefined) throw authFailure('user_not_found')
  // Access tokens outlive a ban, and changes made with them would outlive it too.
  if (isBanned(found.user, services.store.now())) throw authFailure('user_banned')
  if (hasSession && found.session === undefined) throw authFailure('session_not_found')
  return { kind: 'user', ...found, claims }
}

/** Builds the request context of a flow from an HTTP request. */
export function describeRequest(
  services: AuthServices,
  request: FastifyRequest,
  claims: AccessTokenClaims | undefined,
): AuthRequest {
  const { site, jwt, mailer } = services.config
  const query = request.query as Readonly<Record<string, unknown>> | undefined
  const body = request.body as Readonly<Record<string, unknown>> | undefined
  const candidates = [
    request.headers.redirect_to,
    query?.redirect_to,
    body?.redirect_to,
    request.headers.referer,
  ].map((value) => (typeof value === 'string' && value !== '' ? value : undefined))
  return {
    ip: plainAddress(request.ip),
    network: networkOf(request, services.config.rateLimits.header),
    requestId: request.id,
    userAgent: request.headers['user-agent'] ?? '',
    redirectTo: chooseRedirect(candidates, { siteUrl: site.url, uriAllowList: site.uriAllowList }),
    audience: namedAudience(request) || [claims?.aud ?? ''].flat()[0] || jwt.audience,
    externalUrl: externalUrlOf(request, { externalUrl: site.externalUrl, ...mailer }),
    browser: {
      secret: findBindingSecret(request.headers.cookie),
      isNavigation: headerOf(request, 'sec-fetch-mode') === 'navigate',
      host: request.headers.host ?? '',
    },
  }
}

const AUDIENCE_CHARACTERS_MAX = 255

// Visitors choose the audience of their user, which is stored and part of every access token.
function namedAudience(request: FastifyRequest): string {
  const audience = headerOf(request, 'x-jwt-aud') ?? ''
  if (audience.length <= AUDIENCE_CHARACTERS_MAX) return audience
  throw invalid(`X-JWT-AUD must not have more than ${AUDIENCE_CHARACTERS_MAX} characters`)
}

/** A header that occurs exactly once. */
export function headerOf(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name]
  return typeof value === 'string' ? value : undefined
}

// A client-supplied host is used in links only when the operator listed it: otherwise a forged
// header could send a user's link to an attacker.
function externalUrlOf(
  request: FastifyRequest,
  config: { readonly externalUrl: string; readonly externalHosts: readonly string[] },
): string {
  const host = headerOf(request, 'x-forwarded-host') ?? request.headers.host ?? ''
  if (!config.externalHosts.includes(host)) return config.externalUrl
  const isLocal = /^localhost(:\d+)?$/.test(host)
  const isPlain = isLocal && headerOf(request, 'x-forwarded-proto') === 'http'
  return `${isPlain ? 'http' : 'https'}://${host}`
}
