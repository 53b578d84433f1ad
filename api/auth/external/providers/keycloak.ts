import { oneEmail, standardIdToken, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { isTrueAt, textAt } from '#shared/json.ts'

const idToken = standardIdToken('')
const STANDARD_CLAIMS = ['sub', 'name', 'email', 'email_verified']

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
    const user = (await source.load(source.at('/protocol/openid-connect/userinfo'))) as Readonly<
      Record<string, unknown>
    >
    const others = Object.entries(user).filter(([name]) => !STANDARD_CLAIMS.includes(name))
    return toProfile({
      issuer: source.at('').replace(/\/$/, ''),
      subject: textAt(user, 'sub'),
      name: textAt(user, 'name'),
      emails: oneEmail(textAt(user, 'email'), isTrueAt(user, 'email_verified')),
      custom: Object.fromEntries(others),
    })
  },
}
