import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { isTrueAt, listAt, textAt } from '#shared/json.ts'

/** Sign-in with Bitbucket. */
export const bitbucket: ProviderRow = {
  authorize: 'https://bitbucket.org/site/oauth2/authorize',
  token: 'https://bitbucket.org/site/oauth2/access_token',
  scopes: ['account', 'email'],
  clientAuth: 'basic',
  async profile({ load, at }) {
    const user = await load(at('https://api.bitbucket.org/2.0/user'))
    const emails = await load(at('https://api.bitbucket.org/2.0/user/emails'))
    return toProfile({
      issuer: at('https://api.bitbucket.org/2.0'),
      subject: textAt(user, 'uuid'),
      name: textAt(user, 'display_name'),
      picture: textAt(user, 'links', 'avatar', 'href') || textAt(user, 'avatar', 'href'),
      emails: listAt(emails, 'values').flatMap((entry) =>
        oneEmail(textAt(entry, 'email'), isTrueAt(entry, 'is_confirmed')).map((email) => ({
          ...email,
          isPrimary: isTrueAt(entry, 'is_primary'),
        })),
      ),
    })
  },
}
