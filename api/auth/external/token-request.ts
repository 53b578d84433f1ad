import type { ProviderConfig } from '#shared/config/auth-external.ts'
import { field, textAt } from '#shared/json.ts'
import type { GuardedFetch, OutgoingReply, OutgoingRequest } from '#shared/net/guarded-fetch.ts'

import { ProviderReplyError } from './profile.ts'
import type { ProviderTokens } from './row.ts'

/** Exchanges the code for tokens. */
export async function requestTokens(
  fetch: GuardedFetch,
  exchange: {
    readonly url: string
    readonly clientAuth: 'basic' | 'body'
    readonly config: ProviderConfig
    readonly code: string
    readonly codeVerifier: string | undefined
  },
): Promise<ProviderTokens> {
  const { url, clientAuth, config, code, codeVerifier } = exchange
  const clientId = config.clientIds[0] ?? ''
  const isBasic = clientAuth === 'basic'
  const reply = await fetch({
    url,
    method: 'POST',
    ...(isBasic && { headers: { authorization: basicAuthorization(clientId, config.secret) } }),
    form: {
      grant_type: 'authorization_code',
      code,
      redirect_uri: config.redirectUri,
      ...(!isBasic && { client_id: clientId, client_secret: config.secret }),
      ...(codeVerifier !== undefined && { code_verifier: codeVerifier }),
    },
  })
  return readTokens(reply)
}

/** GET that must return JSON. */
export async function getJson(fetch: GuardedFetch, request: OutgoingRequest): Promise<unknown> {
  const reply = await fetch(request)
  if (reply.status !== 200) throw new ProviderReplyError(`the provider answered ${reply.status}`)
  const body = parseBody(reply)
  if (typeof body !== 'object' || body === null || field(body, 'ok') === false) {
    throw new ProviderReplyError('the provider answered nothing usable')
  }
  return body
}

// RFC 6749 section 2.3.1: both parts are form-encoded before they are joined.
function basicAuthorization(clientId: string, secret: string): string {
  const pair = [clientId, secret].map((part) => encodeURIComponent(part).replaceAll('%20', '+'))
  return `Basic ${Buffer.from(pair.join(':')).toString('base64')}`
}

function readTokens(reply: OutgoingReply): ProviderTokens {
  const body = parseBody(reply)
  const accessToken = textAt(body, 'access_token')
  // Some providers report a refused code with status 200.
  if (reply.status < 200 || reply.status > 299 || accessToken === '') {
    const word = textAt(body, 'error').slice(0, 100)
    throw new ProviderReplyError(`the token request failed: ${reply.status} ${word}`)
  }
  return {
    accessToken,
    refreshToken: textAt(body, 'refresh_token'),
    idToken: textAt(body, 'id_token'),
    reply: body,
  }
}

function parseBody(reply: OutgoingReply): unknown {
  if (reply.contentType.includes('x-www-form-urlencoded')) {
    return Object.fromEntries(new URLSearchParams(reply.text))
  }
  try {
    return JSON.parse(reply.text)
  } catch (error) {
    throw new ProviderReplyError(`the provider answered ${reply.status} and no JSON`, error)
  }
}
