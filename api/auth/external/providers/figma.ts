import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

/** Sign-in with Figma. */
export const figma: ProviderRow = {
  authorize: 'https://www.figma.com/oauth',
  token: 'https://api.figma.com/v1/oauth/token',
  scopes: ['files:read'],
  clientAuth: 'basic',
  async profile({ load, at }) {
    const user = await load(at('https://api.figma.com/v1/me'))
    return toProfile({
      issuer: at('https://api.figma.com'),
      subject: textAt(user, 'id'),
      name: textAt(user, 'handle'),
      picture: textAt(user, 'img_url'),
      emails: oneEmail(textAt(user, 'email'), true),
    })
  },
}
