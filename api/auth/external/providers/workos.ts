import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { field, textAt } from '#shared/json.ts'

/** Sign-in with WorkOS. */
export const workos: ProviderRow = {
  authorize: 'https://api.workos.com/sso/authorize',
  token: 'https://api.workos.com/sso/token',
  scopes: [],
  clientAuth: 'body',
  renames: { workos_provider: 'provider' },
  async profile({ tokens, at }) {
    const user = field(tokens.reply, 'profile')
    return toProfile({
      issuer: at('https://api.workos.com'),
      subject: textAt(user, 'id'),
      name: [textAt(user, 'first_name'), textAt(user, 'last_name')].filter(Boolean).join(' '),
      emails: oneEmail(textAt(user, 'email'), true),
      custom: {
        connection_id: textAt(user, 'connection_id'),
        organization_id: textAt(user, 'organization_id'),
      },
    })
  },
}
