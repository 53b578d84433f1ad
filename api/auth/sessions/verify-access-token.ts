import type { AccessTokens } from './access-token.ts'

/** A signed-in user as other surfaces see one. */
export interface VerifiedAccessToken {
  readonly userId: string
  readonly sessionId: string
  readonly role: string
  readonly email: string
  readonly assuranceLevel: string
  readonly isAnonymous: boolean
  readonly expiresAtMs: number
}

/** Checks an access token for another surface; undefined when it is not a valid token of a user. */
type VerifyAccessToken = (accessToken: string) => Promise<VerifiedAccessToken | undefined>

/**
 * Checks signature and audience: access tokens stay valid until they expire. A token for another
 * audience belongs to another application that shares the secret.
 */
export function createAccessTokenVerifier(
  accessTokens: Pick<AccessTokens, 'verify'>,
  audience: string,
): VerifyAccessToken {
  return async (accessToken) => {
    const claims = await accessTokens.verify(accessToken).catch(() => undefined)
    // Project keys have a role but no user, and some never expire.
    if (claims?.sub === undefined || claims.exp === undefined || !UUID.test(claims.sub)) {
      return undefined
    }
    if (![claims.aud].flat().includes(audience)) return undefined
    return {
      userId: claims.sub,
      sessionId: claims.session_id ?? '',
      role: claims.role ?? '',
      email: claims.email ?? '',
      assuranceLevel: claims.aal ?? 'aal1',
      isAnonymous: claims.is_anonymous ?? false,
      expiresAtMs: claims.exp * 1000,
    }
  }
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
