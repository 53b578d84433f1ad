import { oneEmail, toProfile } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'
import { textAt } from '#shared/json.ts'

/** Sign-in with Slack, before OpenID Connect. */
export const slack: ProviderRow = {
  authorize: 'https://slack.com/oauth/authorize',
  token: 'https://slack.com/api/oauth.access',
  scopes: ['profile', 'email', 'openid'],
  clientAuth: 'body',
  async profile({ load, at }) {
    const user = await load(at('https://slack.com/api/openid.connect.userInfo'))
    return toProfile({
      issuer: at('https://slack.com'),
      subject: textAt(user, 'https://slack.com/user_id'),
      name: textAt(user, 'name'),
      picture: textAt(user, 'picture'),
      custom: { 'https://slack.com/team_id': textAt(user, 'https://slack.com/team_id') },
      emails: oneEmail(textAt(user, 'email'), true),
    })
  },
}
