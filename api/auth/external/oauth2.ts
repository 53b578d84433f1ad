import { createHash } from 'node:crypto'

import { errors } from 'jose'

import { OAuthError } from '#api/auth/errors.ts'
import type { ExternalProfile, Provider } from '#api/auth/ports.ts'
import type { ExternalConfig, ProviderConfig } from '#shared/config/auth-external.ts'
import { failure } from '#shared/errors.ts'
import { textAt } from '#shared/json.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

import { type IdTokens, isAccessTokenBound } from './id-tokens.ts'
import { ProviderReplyError } from './profile.ts'
import type { IdTokenRule, ProviderRow, ProviderTokens } from './row.ts'
import { getJson, requestTokens } from './token-request.ts'

/** The definition of an OAuth 2.0 provider. */
interface Oauth2Options {
  readonly id: string
  readonly row: ProviderRow
  readonly config: ProviderConfig
  readonly external: ExternalConfig
  readonly fetch: GuardedFetch
  readonly idTokens: IdTokens
}

type Claims = Readonly<Record<string, unknown>>
type VerifyOptions = Parameters<NonNullable<Provider['verifyIdToken']>>[1]

// Query parameters that clients must not replace.
const PROTECTED = [
  ...['client_id', 'redirect_uri', 'response_type', 'response_mode', 'state', 'scope'],
  ...['code_challenge', 'code_challenge_method', 'nonce', 'request', 'request_uri'],
]

/** A provider defined by its row. */
export function createOauth2Provider(options: Oauth2Options): Provider {
  const { id, row } = options
  const rule = row.idToken
  return {
    id,
    isFormPost: row.parameters?.response_mode === 'form_post',
    authorizationUrl: (request) => authorizationUrl(options, request),
    exchange: (callback) => exchange(options, callback),
    ...(rule !== undefined && {
      verifyIdToken: (idToken: string, expected: VerifyOptions) =>
        verifyForClient(options, { rule, idToken, expected }),
    }),
  }
}

async function authorizationUrl(
  options: Oauth2Options,
  request: Parameters<Provider['authorizationUrl']>[0],
): Promise<string> {
  const { row, config } = options
  const { state, scopes, pkceChallenge, query } = request
  const url = new URL(await endpoint(options, 'authorize'))
  const wanted = scopes.split(',').map((scope) => scope.trim())
  const scope = [...new Set([...row.scopes, ...wanted.filter(Boolean)])].join(' ')
  for (const [name, value] of Object.entries(query)) {
    const theirs = row.renames?.[name] ?? name
    if (!PROTECTED.includes(theirs)) url.searchParams.set(theirs, value)
  }
  const ours = {
    ...row.parameters,
    response_type: 'code',
    client_id: config.clientIds[0] ?? '',
    redirect_uri: config.redirectUri,
    ...(scope !== '' && { scope }),
    state,
    ...(row.idToken !== undefined && { nonce: nonceOf(state) }),
    ...(row.usesPkce &&
      pkceChallenge !== undefined && {
        code_challenge: pkceChallenge,
        code_challenge_method: 'S256',
      }),
  }
  for (const [name, value] of Object.entries(ours)) url.searchParams.set(name, value)
  return url.href
}

async function exchange(
  options: Oauth2Options,
  callback: Parameters<Provider['exchange']>[0],
): Promise<ExternalProfile> {
  const { row, config, fetch } = options
  const tokens = await requestTokens(fetch, {
    url: await endpoint(options, 'token'),
    clientAuth: row.clientAuth,
    config,
    code: callback.code,
    codeVerifier: row.usesPkce ? callback.codeVerifier : undefined,
  })
  const authorization = `Bearer ${tokens.accessToken}`
  const profile = await row.profile({
    config,
    tokens,
    query: callback.query,
    at: (address) => addressOf(options, address),
    load: (url, headers) => getJson(fetch, { url, headers: { ...headers, authorization } }),
    claims: () => ownClaims(options, tokens, callback.query.state ?? ''),
  })
  return {
    ...profile,
    providerAccessToken: tokens.accessToken,
    ...(tokens.refreshToken !== '' && { providerRefreshToken: tokens.refreshToken }),
  }
}

async function ownClaims(
  options: Oauth2Options,
  tokens: ProviderTokens,
  state: string,
): Promise<Claims> {
  const rule = options.row.idToken
  if (rule === undefined || tokens.idToken === '') {
    throw new ProviderReplyError('the provider sent no id token')
  }
  const claims = await verify(options, rule, tokens.idToken)
  if (!isAccessTokenBound(claims, tokens.accessToken)) {
    throw new ProviderReplyError('the id token belongs to another access token')
  }
  const nonce = textAt(claims, 'nonce')
  // Not every provider returns the nonce; if it does, the nonce must be that of this sign-in.
  if (nonce !== '' && nonce !== nonceOf(state) && !options.config.skipsNonceCheck) {
    throw new ProviderReplyError('the id token belongs to another sign-in')
  }
  return claims
}

// The state is a secret of this sign-in, so the nonce derived from it need not be stored.
function nonceOf(state: string): string {
  return createHash('sha256').update(`nonce:${state}`).digest('base64url')
}

function verify(options: Oauth2Options, rule: IdTokenRule, idToken: string): Promise<Claims> {
  const { config, external, idTokens } = options
  return idTokens.verify(idToken, {
    issuer: rule.issuer(config),
    ...(rule.issuerOf !== undefined && { issuerOf: rule.issuerOf }),
    audiences: [...config.clientIds, ...(rule.audiences?.(external) ?? [])],
  })
}

async function verifyForClient(
  options: Oauth2Options,
  token: { readonly rule: IdTokenRule; readonly idToken: string; readonly expected: VerifyOptions },
): Promise<ExternalProfile> {
  const { rule, idToken, expected } = token
  const claims = await verify(options, rule, idToken).catch((error: unknown) => {
    throw refusalOf(error)
  })
  requireAgreement(claims, expected)
  if (!options.config.skipsNonceCheck) {
    checkNonce(textAt(claims, 'nonce'), { rule, nonce: expected.nonce ?? '' })
  }
  const { accessToken } = expected
  if (accessToken !== undefined && !isAccessTokenBound(claims, accessToken)) {
    throw new OAuthError('invalid request', 'Bad ID token')
  }
  return {
    ...profileOf(rule, claims, options.config),
    ...(accessToken !== undefined && { providerAccessToken: accessToken }),
  }
}

function profileOf(rule: IdTokenRule, claims: Claims, config: ProviderConfig): ExternalProfile {
  try {
    return rule.profile(claims, config)
  } catch (error) {
    if (!(error instanceof ProviderReplyError)) throw error
    throw new OAuthError('invalid request', 'Bad ID token', error)
  }
}

// Claims that the client sends can only narrow the accepted ones.
function requireAgreement(claims: Claims, { clientId, issuer }: VerifyOptions): void {
  if (clientId !== undefined && ![claims.aud].flat().includes(clientId)) {
    throw new OAuthError('invalid request', 'Unacceptable audience in id_token')
  }
  const named = textAt(claims, 'iss').replace(/^https:\/\//, '')
  if (issuer !== undefined && issuer.replace(/^https:\/\//, '') !== named) {
    throw new OAuthError('invalid request', 'Bad ID token')
  }
}

// The client keeps the nonce and sends its hash to the provider.
function checkNonce(
  claimed: string,
  { rule, nonce }: { readonly rule: IdTokenRule; readonly nonce: string },
): void {
  if (rule.hasPlainNonce && (nonce === '' || nonce === claimed)) return
  if ((claimed === '') !== (nonce === '')) {
    const message = 'Passed nonce and nonce in id_token should either both exist or not.'
    throw new OAuthError('invalid request', message)
  }
  if (nonce !== '' && createHash('sha256').update(nonce).digest('hex') !== claimed) {
    throw new OAuthError('invalid nonce', 'Nonces mismatch')
  }
}

function refusalOf(error: unknown): Error {
  // The token may be valid, but the issuer's keys could not be fetched.
  if (!(error instanceof errors.JOSEError)) {
    const message = 'Error getting the keys of the external provider'
    return failure.internal(message, { code: 'unexpected_failure', cause: error })
  }
  if (error instanceof errors.JWTClaimValidationFailed && error.claim === 'aud') {
    return new OAuthError('invalid request', 'Unacceptable audience in id_token', error)
  }
  return new OAuthError('invalid request', 'Bad ID token', error)
}

async function endpoint(options: Oauth2Options, kind: 'authorize' | 'token'): Promise<string> {
  const { row, config, idTokens } = options
  const address = row[kind]
  if (address !== undefined) return addressOf(options, address)
  if (row.publicEndpoints !== undefined && config.url === '') return row.publicEndpoints[kind]
  const { authorizationEndpoint, tokenEndpoint } = await idTokens.discover(
    row.idToken?.issuer(config) ?? '',
  )
  const found = kind === 'authorize' ? authorizationEndpoint : tokenEndpoint
  if (!/^https?:\/\//.test(found)) {
    throw new ProviderReplyError('the discovery document is incomplete')
  }
  return found
}

// A configured base URL replaces the public origin; the path stays.
function addressOf({ row, config }: Oauth2Options, address: string): string {
  const base = (config.url || row.defaultUrl || '').replace(/\/+$/, '')
  if (row.isBelowUrl) return `${base}${address}`
  if (base === '') return address
  const { pathname, search } = new URL(address)
  return `${base}${pathname}${search}`
}
