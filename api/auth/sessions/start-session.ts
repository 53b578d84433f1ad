import type { AuthRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { describeAccessToken } from '#api/auth/hooks/access-token-hook.ts'
import type { AuthServices } from '#api/auth/services.ts'
import type { Store } from '#api/auth/store.ts'
import { presentUser } from '#api/auth/users/present-user.ts'
import type { Parts } from '#api/auth/users/user-parts-store.ts'
import { loadParts } from '#api/auth/users/user-store.ts'
import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import type { AccessTokenClaims } from './access-token.ts'
import { openSession } from './session-store.ts'
import { endSessions } from './sessions.ts'

/** A stored session whose tokens have not been returned yet. */
export interface StartedSession {
  readonly user: UserRow
  /** Read for the answer if they were not read together with the user. */
  readonly parts?: Parts
  readonly session: SessionRow
  readonly refreshToken: string
  /** Claims that a hook has already returned. */
  readonly claims?: AccessTokenClaims | undefined
}

/** The answer to every successful sign-in. */
interface TokenResponse {
  readonly access_token: string
  readonly token_type: 'bearer'
  readonly expires_in: number
  readonly expires_at: number
  readonly refresh_token: string
  readonly user: Record<string, unknown>
}

/** Opens a session for an authenticated user. Throws `user_not_found`. */
export async function startSession(
  store: Store,
  start: {
    readonly user: UserRow
    readonly proof: { readonly method: string; readonly provider?: string }
    readonly request: AuthRequest
  },
): Promise<StartedSession> {
  const { user, proof, request } = start
  const { userAgent, ip } = request
  const opened = await openSession(store, { userId: user.id, proof, userAgent, ip })
  if (opened === undefined) throw authFailure('user_not_found')
  return opened
}

/** Signs the access token and presents the user, outside of any transaction. */
export async function tokenResponse(
  services: AuthServices,
  started: StartedSession,
): Promise<TokenResponse> {
  const { user, refreshToken } = started
  const withParts =
    started.parts === undefined ? await loadParts(services.store, user) : { user, ...started.parts }
  const claims = started.claims ?? (await describeOrEnd(services, started))
  // A hook may set its own times.
  const { iat = 0, exp = 0 } = claims
  return {
    access_token: await services.accessTokens.sign(claims),
    token_type: 'bearer',
    expires_in: exp - iat,
    expires_at: exp,
    refresh_token: refreshToken,
    user: presentUser(withParts),
  }
}

// If the hook refuses the access token of a new session, the session ends, because no client has
// its tokens.
async function describeOrEnd(
  services: AuthServices,
  { user, session }: StartedSession,
): Promise<AccessTokenClaims> {
  const isNew = session.refreshedAt === null
  const method = isNew ? (session.amr[0]?.method ?? '') : 'token_refresh'
  try {
    return await describeAccessToken(services, { user, session, method })
  } catch (error) {
    const ended = { userId: user.id, scope: 'local', sessionId: session.id } as const
    if (isNew) await endSessions(services.store, ended)
    throw error
  }
}

/** The token response as the fragment of a redirect; without the user. */
export function tokenFragment(response: TokenResponse): Record<string, string> {
  return {
    access_token: response.access_token,
    expires_at: String(response.expires_at),
    expires_in: String(response.expires_in),
    refresh_token: response.refresh_token,
    token_type: response.token_type,
  }
}
