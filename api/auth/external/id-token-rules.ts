import { profileOfClaims } from './profile.ts'
import type { IdTokenRule } from './row.ts'

/** The issuer of the settings, or the provider's own. */
export function ownIssuer(fallback: string): IdTokenRule['issuer'] {
  return ({ url }) => url.replace(/\/+$/, '') || fallback
}

/** The rule of a provider whose id tokens follow OpenID Connect. */
export function standardIdToken(issuer: string, customClaims: readonly string[] = []): IdTokenRule {
  return {
    issuer: ownIssuer(issuer),
    profile: (claims) => profileOfClaims(claims, { customClaims }),
  }
}
