import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

/** Sign-in with GitLab. */
export const gitlab: ProviderRow = {
  authorize: '/oauth/authorize',
  token: '/oauth/token',
  isBelowUrl: true,
  defaultUrl: 'https://gitlab.com',
  scopes: ['read_user'],
  clientAuth: 'body',
  usesPkce: true,
  async profile({ load, at }) {
    const user = await load(at('/api/v4/user'))
    const main = textAt(user, 'email')
    const others = await load(at('/api/v4/user/emails'))
    return toProfile({
      issuer: at('').replace(/\/$/, ''),
      subject: textAt(user, 'id'),
      name: textAt(user, 'name'),
      picture: textAt(user, 'avatar_url'),
      emails: [
        ...oneEmail(main, textAt(user, 'confirmed_at') !== ''),
        // The list does not state whether these addresses were confirmed.
        ...(Array.isArray(others) ? others : []).flatMap((entry: unknown) =>
          oneEmail(textAt(entry, 'email'), false)
            .filter(({ email }) => email !== main)
            .map((email) => ({ ...email, isPrimary: false })),
        ),
      ],
    })
  },
}
