import { createHmac } from 'node:crypto'

import { field, isTrueAt, listAt, textAt } from './json.ts'
import { oneEmail, profileOfClaims, toProfile } from './profile.ts'
import type { ProviderRow } from './row.ts'

/** Providers of OAuth 2.0 whose profile is asked for. */
export const OAUTH_ROWS = {
  bitbucket: {
    authorize: 'https://bitbucket.org/site/oauth2/authorize',
    token: 'https://bitbucket.org/site/oauth2/access_token',
    scopes: ['account', 'email'],
    clientAuth: 'basic',
    async profile({ load, at }) {
      const user = await load(at('https://api.bitbucket.org/2.0/user'))
      const emails = await load(at('https://api.bitbucket.org/2.0/user/emails'))
      return toProfile({
        issuer: at('https://api.bitbucket.org/2.0'),
        subject: textAt(user, 'uuid'),
        name: textAt(user, 'display_name'),
        picture: textAt(user, 'links', 'avatar', 'href') || textAt(user, 'avatar', 'href'),
        emails: listAt(emails, 'values').flatMap((entry) =>
          oneEmail(textAt(entry, 'email'), isTrueAt(entry, 'is_confirmed')).map((email) => ({
            ...email,
            isPrimary: isTrueAt(entry, 'is_primary'),
          })),
        ),
      })
    },
  },
  discord: {
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
  },
  facebook: {
    authorize: 'https://www.facebook.com/dialog/oauth',
    token: 'https://graph.facebook.com/oauth/access_token',
    scopes: ['email'],
    clientAuth: 'body',
    async profile({ load, at, config, tokens }) {
      const address = new URL(at('https://graph.facebook.com/me'))
      const proof = createHmac('sha256', config.secret).update(tokens.accessToken).digest('hex')
      address.searchParams.set('fields', 'email,first_name,last_name,name,picture')
      address.searchParams.set('appsecret_proof', proof)
      const user = await load(address.href)
      return toProfile({
        issuer: at('https://graph.facebook.com'),
        subject: textAt(user, 'id'),
        name: textAt(user, 'name') || names(textAt(user, 'first_name'), textAt(user, 'last_name')),
        nickname: textAt(user, 'alias'),
        slug: textAt(user, 'alias'),
        picture: textAt(user, 'picture', 'data', 'url'),
        emails: oneEmail(textAt(user, 'email'), true),
      })
    },
    // Of "Limited Login" on devices; the redirect brings none.
    idToken: {
      issuer: ({ url }) => url.replace(/\/+$/, '') || 'https://www.facebook.com',
      hasPlainNonce: true,
      profile: (claims) => profileOfClaims(claims, { isVerified: true }),
    },
  },
  figma: {
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
  },
  fly: {
    authorize: 'https://api.fly.io/oauth/authorize',
    token: 'https://api.fly.io/oauth/token',
    scopes: ['read'],
    clientAuth: 'body',
    async profile({ load, at }) {
      const user = await load(at('https://api.fly.io/oauth/token/info'))
      return toProfile({
        issuer: at('https://api.fly.io'),
        subject: textAt(user, 'user_id'),
        name: textAt(user, 'user_name'),
        emails: oneEmail(textAt(user, 'email'), true),
      })
    },
  },
  github: {
    authorize: 'https://github.com/login/oauth/authorize',
    token: 'https://github.com/login/oauth/access_token',
    scopes: ['user:email'],
    clientAuth: 'body',
    usesPkce: true,
    async profile({ load, at, config }) {
      // GitHub Enterprise has the same interface below /api/v3 of its own host.
      const api = config.url === '' ? 'https://api.github.com' : at('https://github.com/api/v3')
      const user = await load(`${api}/user`)
      const emails = await load(`${api}/user/emails`)
      return toProfile({
        issuer: api,
        subject: textAt(user, 'id'),
        name: textAt(user, 'name'),
        userName: textAt(user, 'login'),
        preferredUsername: textAt(user, 'login'),
        picture: textAt(user, 'avatar_url'),
        emails: (Array.isArray(emails) ? emails : []).flatMap((entry: unknown) =>
          oneEmail(textAt(entry, 'email'), isTrueAt(entry, 'verified')).map((email) => ({
            ...email,
            isPrimary: isTrueAt(entry, 'primary'),
          })),
        ),
      })
    },
  },
  gitlab: {
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
          // Nothing in this list says that anybody confirmed them.
          ...(Array.isArray(others) ? others : []).flatMap((entry: unknown) =>
            oneEmail(textAt(entry, 'email'), false)
              .filter(({ email }) => email !== main)
              .map((email) => ({ ...email, isPrimary: false })),
          ),
        ],
      })
    },
  },
  kakao: {
    authorize: 'https://kauth.kakao.com/oauth/authorize',
    token: 'https://kauth.kakao.com/oauth/token',
    scopes: ['account_email', 'profile_image', 'profile_nickname'],
    clientAuth: 'body',
    async profile({ load, at }) {
      const user = await load(at('https://kapi.kakao.com/v2/user/me'))
      const account = field(user, 'kakao_account')
      const nickname = textAt(account, 'profile', 'nickname')
      const isVerified =
        isTrueAt(account, 'is_email_verified') && isTrueAt(account, 'is_email_valid')
      return toProfile({
        issuer: at('https://kapi.kakao.com'),
        subject: textAt(user, 'id'),
        name: nickname,
        preferredUsername: nickname,
        userName: nickname,
        picture: textAt(account, 'profile', 'profile_image_url'),
        emails: oneEmail(textAt(account, 'email'), isVerified),
      })
    },
    idToken: {
      issuer: ({ url }) => url.replace(/\/+$/, '') || 'https://kauth.kakao.com',
      profile: (claims) => profileOfClaims(claims),
    },
  },
} as const satisfies Record<string, ProviderRow>

function names(...parts: readonly string[]): string {
  return parts.filter(Boolean).join(' ')
}
