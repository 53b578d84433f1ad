import { field, isTrueAt, listAt, textAt } from './json.ts'
import { oneEmail, toProfile } from './profile.ts'
import type { ProviderRow } from './row.ts'

/** Further providers of OAuth 2.0, in the order of the alphabet. */
export const MORE_OAUTH_ROWS = {
  linkedin: {
    authorize: 'https://api.linkedin.com/oauth/v2/authorization',
    token: 'https://api.linkedin.com/oauth/v2/accessToken',
    scopes: ['r_emailaddress', 'r_liteprofile'],
    clientAuth: 'body',
    async profile({ load, at }) {
      const user = await load(
        at(
          'https://api.linkedin.com/v2/me?projection=(id,firstName,lastName,profilePicture(displayImage~:playableStreams))',
        ),
      )
      const emails = await load(
        at('https://api.linkedin.com/v2/emailAddress?q=members&projection=(elements*(handle~))'),
      )
      const name = [localized(field(user, 'firstName')), localized(field(user, 'lastName'))]
      const pictures = field(field(user, 'profilePicture'), 'displayImage~')
      return toProfile({
        issuer: at('https://api.linkedin.com'),
        subject: textAt(user, 'id'),
        name: name.filter(Boolean).join(' '),
        picture: textAt(pictures, 'elements', 0, 'identifiers', 0, 'identifier'),
        emails: oneEmail(textAt(emails, 'elements', 0, 'handle~', 'emailAddress'), true),
      })
    },
  },
  notion: {
    authorize: 'https://api.notion.com/v1/oauth/authorize',
    token: 'https://api.notion.com/v1/oauth/token',
    scopes: [],
    clientAuth: 'basic',
    parameters: { owner: 'user' },
    async profile({ load, at }) {
      const me = await load(at('https://api.notion.com/v1/users/me'), {
        'notion-version': '2021-08-16',
      })
      const user = field(field(field(me, 'bot'), 'owner'), 'user')
      return toProfile({
        issuer: at('https://api.notion.com'),
        subject: textAt(user, 'id'),
        name: textAt(user, 'name'),
        picture: textAt(user, 'avatar_url'),
        emails: oneEmail(textAt(user, 'person', 'email'), true),
      })
    },
  },
  slack: {
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
  },
  snapchat: {
    authorize: 'https://accounts.snapchat.com/accounts/oauth2/auth',
    token: 'https://accounts.snapchat.com/accounts/oauth2/token',
    scopes: ['user.external_id', 'user.display_name', 'user.bitmoji.avatar'].map(
      (name) => `https://auth.snapchat.com/oauth2/api/${name}`,
    ),
    clientAuth: 'body',
    async profile({ load, at }) {
      const address = new URL(at('https://kit.snapchat.com/v1/me'))
      address.searchParams.set('query', '{me{externalId displayName bitmoji{avatar id}}}')
      const me = field(field(await load(address.href), 'data'), 'me')
      return toProfile({
        issuer: at('https://kit.snapchat.com'),
        subject: textAt(me, 'externalId'),
        name: textAt(me, 'displayName'),
        picture: textAt(me, 'bitmoji', 'avatar'),
        // Snapchat returns no email addresses: set AUTH_EXTERNAL_SNAPCHAT_EMAIL_OPTIONAL.
        emails: [],
      })
    },
  },
  spotify: {
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
        // Spotify says itself that it never checks addresses.
        emails: oneEmail(textAt(user, 'email'), false),
      })
    },
  },
  twitch: {
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
  },
  workos: {
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
  },
  zoom: {
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
  },
} as const satisfies Record<string, ProviderRow>

// LinkedIn has a name per language, and says which one its owner prefers.
function localized(name: unknown): string {
  const language = textAt(name, 'preferredLocale', 'language')
  const country = textAt(name, 'preferredLocale', 'country')
  return textAt(name, 'localized', `${language}_${country}`)
}
