import { profileOfClaims, standardIdToken } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'

const idToken = standardIdToken('')

/** Sign-in with Keycloak. */
export const keycloak: ProviderRow = {
  authorize: '/protocol/openid-connect/auth',
  token: '/protocol/openid-connect/token',
  isBelowUrl: true,
  // Newer versions answer /userinfo only to tokens with the openid scope.
  scopes: ['openid', 'profile', 'email'],
  clientAuth: 'body',
  usesPkce: true,
  idToken,
  profile: async (source) => {
    const user = await source.load(source.at('/protocol/openid-connect/userinfo'))
    return profileOfClaims({ ...(user as object), iss: source.at('').replace(/\/$/, '') })
  },
}
