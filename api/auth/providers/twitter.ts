import { randomBytes } from 'node:crypto'

import type { Clock } from '#shared/clock.ts'
import type { ProviderConfig } from '#shared/config/auth-external.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

import type { Provider } from '../ports.ts'
import { textAt } from './json.ts'
import { seal, signOauth1, unseal } from './oauth1.ts'
import { oneEmail, ProviderReplyError, toProfile } from './profile.ts'
import { getJson } from './token-request.ts'

/**
 * Twitter by OAuth 1.0a. The secret of the request token comes back with the callback, sealed for
 * the state it belongs to, so that nothing has to be stored for visitors who never return.
 */
export function createTwitter(options: {
  readonly config: ProviderConfig
  readonly fetch: GuardedFetch
  readonly clock: Clock
}): Provider {
  const { config, fetch, clock } = options
  const origin = config.url.replace(/\/+$/, '') || 'https://api.twitter.com'
  const sign = (request: Omit<Parameters<typeof signOauth1>[0], keyof Signer>) =>
    signOauth1({ ...request, ...signerOf(config, clock) })
  const post = async (path: string, request: Signed) => {
    const url = `${origin}${path}`
    const authorization = sign({ method: 'POST', url, ...request })
    const reply = await fetch({ url, method: 'POST', headers: { authorization } })
    const fields = new URLSearchParams(reply.text)
    const token = fields.get('oauth_token') ?? ''
    const secret = fields.get('oauth_token_secret') ?? ''
    if (reply.status !== 200 || token === '' || secret === '') {
      throw new ProviderReplyError(`the token request failed: ${reply.status}`)
    }
    return { token, secret }
  }
  return {
    id: 'twitter',
    async authorizationUrl({ state }) {
      // The secret is only known afterwards, so the callback cannot carry it: the key of its seal
      // must travel instead, and the secret beside the request token.
      const back = new URL(config.redirectUri)
      back.searchParams.set('state', state)
      const { token, secret } = await post('/oauth/request_token', {
        extra: { oauth_callback: back.href },
      })
      const url = new URL(`${origin}/oauth/authenticate`)
      url.searchParams.set('oauth_token', token)
      pending.put(token, seal(secret, { secret: config.secret, context: state }))
      return url.href
    },
    async exchange() {
      throw new ProviderReplyError('unreachable')
    },
  }
}
