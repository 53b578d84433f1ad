import { standardIdToken } from '#api/auth/external/profile.ts'
import type { ProviderRow } from '#api/auth/external/row.ts'

const idToken = standardIdToken('https://slack.com', [
  'https://slack.com/team_id',
  'https://slack.com/user_id',
])

/** Sign-in with Slack. */
export const slackOidc: ProviderRow = {
  authorize: 'https://slack.com/openid/connect/authorize',
  token: 'https://slack.com/api/openid.connect.token',
  scopes: ['openid', 'email', 'profile'],
  clientAuth: 'body',
  idToken,
  profile: async (source) => idToken.profile(await source.claims(), source.config),
}
