import { createHash, randomBytes } from 'node:crypto'

import { signOauth1 } from '#api/auth/external/oauth1.ts'
import { oneEmail, ProviderReplyError, toProfile } from '#api/auth/external/profile.ts'
import type { RequestSecrets } from '#api/auth/external/request-secrets.ts'
import { getJson } from '#api/auth/external/token-request.ts'
import type { Provider } from '#api/auth/ports.ts'
import type { Clock } from '#shared/clock.ts'
import type { ProviderConfig } from '#shared/config/auth-external.ts'
import { textAt } from '#shared/json.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

interface Token {
  readonly token: string
  readonly tokenSecret: string
}

type Signed = Partial<Token> & { readonly extra?: Readonly<Record<string, string>> }

const PROFILE_PATH =
  '/1.1/account/verify_credentials.json?include_email=true&include_entities=false&skip_status=true'

/** Sign-in with Twitter, the only provider with OAuth 1.0a. */
export function createTwitter(options: {
  readonly config: ProviderConfig
  readonly fetch: GuardedFetch
  readonly clock: Clock
  readonly secrets: RequestSecrets
}): Provider {
  const { config, fetch, clock, secrets } = options
  const origin = config.url.replace(/\/+$/, '') || 'https://api.twitter.com'
  const sign = (method: 'GET' | 'POST', url: string, signed: Signed) =>
    signOauth1({
      method,
      url,
      ...signed,
      consumerKey: config.clientIds[0] ?? '',
      consumerSecret: config.secret,
      nonce: randomBytes(16).toString('hex'),
      timestampSeconds: Math.floor(clock.now() / 1000),
    })
  const requestToken = async (path: string, signed: Signed): Promise<Token> => {
    const url = `${origin}${path}`
    const headers = { authorization: sign('POST', url, signed), accept: '*/*' }
    return readToken(await fetch({ url, method: 'POST', headers }))
  }
  return {
    id: 'twitter',
    async authorizationUrl({ state, query }) {
      const back = new URL(config.redirectUri)
      back.searchParams.set('state', state)
      const extra = { oauth_callback: back.href }
      const { token, tokenSecret } = await requestToken('/oauth/request_token', { extra })
      await secrets.put(keyOf(state, token), tokenSecret)
      const url = new URL(`${origin}/oauth/authenticate`)
      for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
      url.searchParams.set('oauth_token', token)
      return url.href
    },
    async exchange({ query }) {
      const { state = '', oauth_token: token = '', oauth_verifier: verifier = '' } = query
      const tokenSecret = await secrets.take(keyOf(state, token))
      if (tokenSecret === undefined) throw new ProviderReplyError('the request token is unknown')
      const extra = { oauth_verifier: verifier }
      const access = await requestToken('/oauth/access_token', { token, tokenSecret, extra })
      const url = `${origin}${PROFILE_PATH}`
      const headers = { authorization: sign('GET', url, access) }
      return toTwitterProfile(await getJson(fetch, { url, headers }), origin, access)
    },
  }
}

// A request token is only valid for the sign-in that requested it.
function keyOf(state: string, token: string): string {
  return createHash('sha256').update(`${state}:${token}`).digest('base64url')
}

function readToken(reply: { readonly status: number; readonly text: string }): Token {
  const fields = new URLSearchParams(reply.text)
  const token = fields.get('oauth_token') ?? ''
  const tokenSecret = fields.get('oauth_token_secret') ?? ''
  if (reply.status !== 200 || token === '' || tokenSecret === '') {
    throw new ProviderReplyError(`the token request failed: ${reply.status}`)
  }
  return { token, tokenSecret }
}

function toTwitterProfile(user: unknown, issuer: string, access: Token) {
  const screenName = textAt(user, 'screen_name')
  const profile = toProfile({
    issuer,
    // The number exceeds the range that JSON numbers represent exactly.
    subject: textAt(user, 'id_str'),
    name: textAt(user, 'name'),
    userName: screenName,
    preferredUsername: screenName,
    slug: screenName,
    picture: textAt(user, 'profile_image_url_https'),
    emails: oneEmail(textAt(user, 'email'), true),
  })
  return {
    ...profile,
    providerAccessToken: access.token,
  }
}
