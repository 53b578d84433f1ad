import type { ProviderId } from '#shared/config/provider-ids.ts'

import type { PeerReply } from './http-peers.ts'

/** One provider as a local server plays it, in the shapes of its public documentation. */
export interface ProviderCase {
  readonly id: ProviderId
  readonly scopes: readonly string[]
  readonly tokenPath: string
  readonly isBasic?: true
  readonly tokenReply?: Record<string, unknown>
  readonly claims?: Record<string, unknown>
  readonly profile: Record<string, PeerReply>
  readonly expected: {
    readonly subject: string
    readonly emails: readonly { email: string; isVerified: boolean; isPrimary: boolean }[]
    readonly metadata?: Record<string, unknown>
  }
}

const email = (address: string, isVerified = true, isPrimary = true) => ({
  email: address,
  isVerified,
  isPrimary,
})
const body = (value: unknown): PeerReply => ({ body: value })

/** The claims of a standard id token. */
export const ID_TOKEN_CLAIMS = {
  sub: 'oidc-1',
  name: 'Olga',
  email: 'o@test.dev',
  email_verified: true,
}

const oidc = (id: ProviderId, tokenPath: string, scopes: readonly string[]): ProviderCase => ({
  id,
  tokenPath,
  scopes,
  claims: ID_TOKEN_CLAIMS,
  profile: {},
  expected: { subject: 'oidc-1', emails: [email('o@test.dev')], metadata: { full_name: 'Olga' } },
})

const OIDC_SCOPES = ['openid', 'email', 'profile']
const SNAPCHAT = 'https://auth.snapchat.com/oauth2/api/user.'

/** Every provider of OAuth 2.0. */
export const PROVIDER_CASES: readonly ProviderCase[] = [
  oidc('apple', '/token', ['email', 'name']),
  oidc('azure', '/oauth2/v2.0/token', ['openid']),
  oidc('google', '/token', OIDC_SCOPES),
  oidc('oidc', '/token', OIDC_SCOPES),
  oidc('linkedin_oidc', '/oauth/v2/accessToken', OIDC_SCOPES),
  oidc('slack_oidc', '/api/openid.connect.token', OIDC_SCOPES),
  {
    id: 'keycloak',
    tokenPath: '/protocol/openid-connect/token',
    scopes: ['openid', 'profile', 'email'],
    profile: {
      '/protocol/openid-connect/userinfo': body({
        sub: 'k',
        email: 'k@test.dev',
        email_verified: false,
      }),
    },
    expected: { subject: 'k', emails: [email('k@test.dev', false)] },
  },
  {
    id: 'bitbucket',
    tokenPath: '/site/oauth2/access_token',
    isBasic: true,
    scopes: ['account', 'email'],
    profile: {
      '/2.0/user': body({ uuid: '{b}', display_name: 'Bo' }),
      '/2.0/user/emails': body({
        values: [{ email: 'b@test.dev', is_primary: true, is_confirmed: false }],
      }),
    },
    expected: { subject: '{b}', emails: [email('b@test.dev', false)], metadata: { name: 'Bo' } },
  },
  {
    id: 'discord',
    tokenPath: '/api/oauth2/token',
    scopes: ['email', 'identify'],
    profile: {
      '/api/users/@me': body({
        id: '7',
        username: 'di',
        discriminator: '0',
        avatar: 'a_x',
        verified: true,
        email: 'd@test.dev',
      }),
    },
    expected: {
      subject: '7',
      emails: [email('d@test.dev')],
      metadata: {
        name: 'di#0',
        full_name: 'di',
        picture: 'https://cdn.discordapp.com/avatars/7/a_x.gif',
      },
    },
  },
  {
    id: 'facebook',
    tokenPath: '/oauth/access_token',
    scopes: ['email'],
    // Facebook leaves the address out when its user has none.
    profile: { '/me': body({ id: 'f', name: 'Fay' }) },
    expected: { subject: 'f', emails: [], metadata: { name: 'Fay', email_verified: false } },
  },
  {
    id: 'figma',
    tokenPath: '/v1/oauth/token',
    isBasic: true,
    scopes: ['files:read'],
    profile: { '/v1/me': body({ id: 'fi', handle: 'Fi', email: 'fi@test.dev', img_url: 'i' }) },
    expected: { subject: 'fi', emails: [email('fi@test.dev')], metadata: { avatar_url: 'i' } },
  },
  {
    id: 'fly',
    tokenPath: '/oauth/token',
    scopes: ['read'],
    profile: {
      '/oauth/token/info': body({ user_id: 'fl', user_name: 'Fl', email: 'fl@test.dev' }),
    },
    expected: { subject: 'fl', emails: [email('fl@test.dev')] },
  },
  {
    id: 'github',
    tokenPath: '/login/oauth/access_token',
    scopes: ['user:email'],
    profile: {
      '/api/v3/user': body({ id: 42, login: 'octo', name: 'Octo' }),
      '/api/v3/user/emails': body([
        { email: 'g@test.dev', primary: true, verified: true },
        { email: 'h@test.dev', primary: false, verified: false },
      ]),
    },
    expected: {
      subject: '42',
      emails: [email('g@test.dev'), email('h@test.dev', false, false)],
      metadata: { user_name: 'octo', preferred_username: 'octo', sub: '42', provider_id: '42' },
    },
  },
  {
    id: 'gitlab',
    tokenPath: '/oauth/token',
    scopes: ['read_user'],
    profile: {
      '/api/v4/user': body({ id: 5, name: 'Gi', email: 'gi@test.dev', confirmed_at: '2020-01-01' }),
      '/api/v4/user/emails': body([{ email: 'other@test.dev' }]),
    },
    expected: {
      subject: '5',
      emails: [email('gi@test.dev'), email('other@test.dev', false, false)],
    },
  },
  {
    id: 'kakao',
    tokenPath: '/oauth/token',
    scopes: ['account_email', 'profile_image', 'profile_nickname'],
    profile: {
      '/v2/user/me': body({
        id: 9,
        kakao_account: { email: 'k@test.dev', is_email_valid: true, is_email_verified: false },
      }),
    },
    expected: { subject: '9', emails: [email('k@test.dev', false)] },
  },
  {
    id: 'linkedin',
    tokenPath: '/oauth/v2/accessToken',
    scopes: ['r_emailaddress', 'r_liteprofile'],
    profile: {
      '/v2/me': body({
        id: 'l',
        firstName: {
          localized: { en_US: 'Li' },
          preferredLocale: { language: 'en', country: 'US' },
        },
      }),
      '/v2/emailAddress': body({ elements: [{ 'handle~': { emailAddress: 'l@test.dev' } }] }),
    },
    expected: { subject: 'l', emails: [email('l@test.dev')], metadata: { name: 'Li' } },
  },
  {
    id: 'notion',
    tokenPath: '/v1/oauth/token',
    isBasic: true,
    scopes: [],
    profile: {
      '/v1/users/me': body({
        bot: { owner: { user: { id: 'n', name: 'No', person: { email: 'n@test.dev' } } } },
      }),
    },
    expected: { subject: 'n', emails: [email('n@test.dev')], metadata: { name: 'No' } },
  },
  {
    id: 'slack',
    tokenPath: '/api/oauth.access',
    scopes: ['profile', 'email', 'openid'],
    profile: {
      '/api/openid.connect.userInfo': body({
        ok: true,
        'https://slack.com/user_id': 'U1',
        email: 's@test.dev',
      }),
    },
    expected: { subject: 'U1', emails: [email('s@test.dev')] },
  },
  {
    id: 'snapchat',
    tokenPath: '/accounts/oauth2/token',
    scopes: ['external_id', 'display_name', 'bitmoji.avatar'].map((name) => SNAPCHAT + name),
    profile: { '/v1/me': body({ data: { me: { externalId: 'sn', displayName: 'Sn' } } }) },
    expected: { subject: 'sn', emails: [], metadata: { name: 'Sn' } },
  },
  {
    id: 'spotify',
    tokenPath: '/api/token',
    isBasic: true,
    scopes: ['user-read-email'],
    profile: {
      '/v1/me': body({
        id: 'sp',
        email: 'sp@test.dev',
        images: [
          { url: 's', height: 64 },
          { url: 'l', height: 300 },
        ],
      }),
    },
    expected: { subject: 'sp', emails: [email('sp@test.dev', false)], metadata: { picture: 'l' } },
  },
  {
    id: 'twitch',
    tokenPath: '/oauth2/token',
    scopes: ['user:read:email'],
    profile: {
      '/helix/users': body({
        data: [{ id: 't', login: 'tw', display_name: 'Tw', email: 't@test.dev' }],
      }),
    },
    expected: {
      subject: 't',
      emails: [email('t@test.dev')],
      metadata: { name: 'tw', nickname: 'Tw' },
    },
  },
  {
    id: 'workos',
    tokenPath: '/sso/token',
    scopes: [],
    profile: {},
    tokenReply: { profile: { id: 'w', first_name: 'Wo', email: 'w@test.dev', connection_id: 'c' } },
    expected: { subject: 'w', emails: [email('w@test.dev')], metadata: { name: 'Wo' } },
  },
  {
    id: 'zoom',
    tokenPath: '/oauth/token',
    isBasic: true,
    scopes: [],
    profile: {
      '/v2/users/me': body({ id: 'z', first_name: 'Zo', email: 'z@test.dev', verified: 0 }),
    },
    expected: { subject: 'z', emails: [email('z@test.dev', false)] },
  },
]
