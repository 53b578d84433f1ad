import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { isTrueAt, textAt } from '#shared/json.ts'

/** Sign-in with Discord. */
export const discord: ProviderRow = {
  authorize: 'https://discord.com/api/oauth2/authorize',
  token: 'https://discord.com/api/oauth2/token',
  scopes: ['email', 'identify'],
  clientAuth: 'body',
  usesPkce: true,
  async profile({ load, at }) {
    const user = await load(at('https://discord.com/api/users/@me'))
    const [id, hash] = [textAt(user, 'id'), textAt(user, 'avatar')]
    const discriminator = textAt(user, 'discriminator') || '0'
    const kind = hash.startsWith('a_') ? 'gif' : 'png'
    const fallback = Number(discriminator) % 5
    return toProfile({
      issuer: at('https://discord.com/api'),
      subject: id,
      name: `${textAt(user, 'username')}#${discriminator}`,
      fullName: textAt(user, 'username'),
      picture:
        hash === ''
          ? `https://cdn.discordapp.com/embed/avatars/${fallback}.png`
          : `https://cdn.discordapp.com/avatars/${id}/${hash}.${kind}`,
      custom: { global_name: textAt(user, 'global_name') },
      emails: oneEmail(textAt(user, 'email'), isTrueAt(user, 'verified')),
    })
  },
}
