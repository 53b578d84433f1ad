import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { field, textAt } from '#shared/json.ts'

/** Sign-in with Notion. */
export const notion: ProviderRow = {
  authorize: 'https://api.notion.com/v1/oauth/authorize',
  token: 'https://api.notion.com/v1/oauth/token',
  scopes: [],
  clientAuth: 'basic',
  parameters: { owner: 'user' },
  async profile({ load, at }) {
    const me = await load(at('https://api.notion.com/v1/users/me'), {
      'notion-version': '2021-08-16',
    })
    const user = field(field(field(me, 'bot'), 'owner'), 'user')
    return toProfile({
      issuer: at('https://api.notion.com'),
      subject: textAt(user, 'id'),
      name: textAt(user, 'name'),
      picture: textAt(user, 'avatar_url'),
      emails: oneEmail(textAt(user, 'person', 'email'), true),
    })
  },
}
