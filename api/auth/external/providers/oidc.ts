import { ownIssuer, profileOfClaims } from '#api/auth/external/profile.ts'
import type { IdTokenRule, ProviderRow } from '#api/auth/external/row.ts'

const idToken: IdTokenRule = {
  issuer: ownIssuer(''),
  profile: (claims) => profileOfClaims(claims, { keepsOthers: true }),
}

/** Any issuer with OpenID Connect, whose discovery document names the endpoints. */
export const oidc: ProviderRow = {
  scopes: ['openid', 'email', 'profile'],
  clientAuth: 'body',
  usesPkce: true,
  idToken,
  profile: async (source) => idToken.profile(await source.claims(), source.config),
}
