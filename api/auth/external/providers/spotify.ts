import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { listAt, textAt } from '#shared/json.ts'

/** Sign-in with Spotify. */
export const spotify: ProviderRow = {
  authorize: 'https://accounts.spotify.com/authorize',
  token: 'https://accounts.spotify.com/api/token',
  scopes: ['user-read-email'],
  clientAuth: 'basic',
  usesPkce: true,
  async profile({ load, at }) {
    const user = await load(at('https://api.spotify.com/v1/me'))
    const images = listAt(user, 'images').toSorted(
      (a, b) => Number(textAt(b, 'height')) - Number(textAt(a, 'height')),
    )
    return toProfile({
      issuer: at('https://api.spotify.com/v1'),
      subject: textAt(user, 'id'),
      name: textAt(user, 'display_name'),
      picture: textAt(images, 0, 'url'),
      // Spotify documents that it never verifies addresses.
      emails: oneEmail(textAt(user, 'email'), false),
    })
  },
}
