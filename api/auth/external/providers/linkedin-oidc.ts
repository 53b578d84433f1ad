import { standardIdToken } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'

const idToken = standardIdToken('https://www.linkedin.com/oauth')

/** Sign-in with LinkedIn. */
export const linkedinOidc: ProviderRow = {
  authorize: 'https://www.linkedin.com/oauth/v2/authorization',
  token: 'https://www.linkedin.com/oauth/v2/accessToken',
  scopes: ['openid', 'email', 'profile'],
  clientAuth: 'body',
  idToken,
  profile: async (source) => idToken.profile(await source.claims(), source.config),
}
