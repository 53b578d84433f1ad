import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { listAt, textAt } from '#shared/json.ts'

/** Sign-in with Twitch. */
export const twitch: ProviderRow = {
  authorize: 'https://id.twitch.tv/oauth2/authorize',
  token: 'https://id.twitch.tv/oauth2/token',
  scopes: ['user:read:email'],
  clientAuth: 'body',
  async profile({ load, at, config }) {
    const users = await load(at('https://api.twitch.tv/helix/users'), {
      'client-id': config.clientIds[0] ?? '',
    })
    const user = listAt(users, 'data')[0]
    return toProfile({
      issuer: at('https://api.twitch.tv'),
      subject: textAt(user, 'id'),
      name: textAt(user, 'login'),
      slug: textAt(user, 'login'),
      nickname: textAt(user, 'display_name'),
      picture: textAt(user, 'profile_image_url'),
      emails: oneEmail(textAt(user, 'email'), true),
    })
  },
}
