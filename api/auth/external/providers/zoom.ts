import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { isTrueAt, textAt } from '#shared/json.ts'

/** Sign-in with Zoom. */
export const zoom: ProviderRow = {
  authorize: 'https://zoom.us/oauth/authorize',
  token: 'https://zoom.us/oauth/token',
  scopes: [],
  clientAuth: 'basic',
  usesPkce: true,
  async profile({ load, at }) {
    const user = await load(at('https://api.zoom.us/v2/users/me'))
    return toProfile({
      issuer: at('https://api.zoom.us/v2'),
      subject: textAt(user, 'id'),
      name: [textAt(user, 'first_name'), textAt(user, 'last_name')].filter(Boolean).join(' '),
      picture: textAt(user, 'pic_url'),
      emails: oneEmail(
        textAt(user, 'email'),
        isTrueAt(user, 'verified') || textAt(user, 'verified') === '1',
      ),
    })
  },
}
