import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

/** Sign-in with Fly.io. */
export const fly: ProviderRow = {
  authorize: 'https://api.fly.io/oauth/authorize',
  token: 'https://api.fly.io/oauth/token',
  scopes: ['read'],
  clientAuth: 'body',
  async profile({ load, at }) {
    const user = await load(at('https://api.fly.io/oauth/token/info'))
    return toProfile({
      issuer: at('https://api.fly.io'),
      subject: textAt(user, 'user_id'),
      name: textAt(user, 'user_name'),
      emails: oneEmail(textAt(user, 'email'), true),
    })
  },
}
