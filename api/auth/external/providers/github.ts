import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { isTrueAt, textAt } from '#shared/json.ts'

/** Sign-in with GitHub. */
export const github: ProviderRow = {
  authorize: 'https://github.com/login/oauth/authorize',
  token: 'https://github.com/login/oauth/access_token',
  scopes: ['user:email'],
  clientAuth: 'body',
  usesPkce: true,
  async profile({ load, at, config }) {
    // GitHub Enterprise has the same API below /api/v3 of its own host.
    const api = config.url === '' ? 'https://api.github.com' : at('https://github.com/api/v3')
    const user = await load(`${api}/user`)
    const emails = await load(`${api}/user/emails`)
    return toProfile({
      issuer: api,
      subject: textAt(user, 'id'),
      name: textAt(user, 'name'),
      userName: textAt(user, 'login'),
      preferredUsername: textAt(user, 'login'),
      picture: textAt(user, 'avatar_url'),
      emails: (Array.isArray(emails) ? emails : []).flatMap((entry: unknown) =>
        oneEmail(textAt(entry, 'email'), isTrueAt(entry, 'verified')).map((email) => ({
          ...email,
          isPrimary: isTrueAt(entry, 'primary'),
        })),
      ),
    })
  },
}
