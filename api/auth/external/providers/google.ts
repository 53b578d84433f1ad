import { oneEmail, standardIdToken, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { field, textAt } from '#shared/json.ts'

const idToken = standardIdToken('https://accounts.google.com', ['hd'])

/** Sign-in with Google. */
export const google: ProviderRow = {
  publicEndpoints: {
    authorize: 'https://accounts.google.com/o/oauth2/v2/auth',
    token: 'https://oauth2.googleapis.com/token',
  },
  scopes: ['openid', 'email', 'profile'],
  clientAuth: 'body',
  usesPkce: true,
  idToken,
  profile: async (source) => {
    if (source.tokens.idToken !== '') return idToken.profile(await source.claims(), source.config)
    const user = await source.load(source.at('https://www.googleapis.com/userinfo/v2/me'))
    return toProfile({
      issuer: 'https://accounts.google.com',
      subject: textAt(user, 'id'),
      name: textAt(user, 'name'),
      picture: textAt(user, 'picture'),
      emails: oneEmail(textAt(user, 'email'), field(user, 'verified_email') === true),
    })
  },
}
