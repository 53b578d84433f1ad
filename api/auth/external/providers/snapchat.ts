import { toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { field, textAt } from '#shared/json.ts'

/** Sign-in with Snapchat. */
export const snapchat: ProviderRow = {
  authorize: 'https://accounts.snapchat.com/accounts/oauth2/auth',
  token: 'https://accounts.snapchat.com/accounts/oauth2/token',
  scopes: ['user.external_id', 'user.display_name', 'user.bitmoji.avatar'].map(
    (name) => `https://auth.snapchat.com/oauth2/api/${name}`,
  ),
  clientAuth: 'body',
  async profile({ load, at }) {
    const address = new URL(at('https://kit.snapchat.com/v1/me'))
    address.searchParams.set('query', '{me{externalId displayName bitmoji{avatar id}}}')
    const me = field(field(await load(address.href), 'data'), 'me')
    return toProfile({
      issuer: at('https://kit.snapchat.com'),
      subject: textAt(me, 'externalId'),
      name: textAt(me, 'displayName'),
      picture: textAt(me, 'bitmoji', 'avatar'),
      // Snapchat returns no email addresses: set AUTH_EXTERNAL_SNAPCHAT_EMAIL_OPTIONAL.
      emails: [],
    })
  },
}
