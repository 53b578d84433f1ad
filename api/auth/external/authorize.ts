import { createHash, randomBytes } from 'node:crypto'

import {
  type Answer,
  type AuthRequest,
  json,
  redirect,
  type UserRequest,
} from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import type { Provider } from '#api/auth/ports.ts'
import type { AuthorizeQuery, Parsed } from '#api/auth/schemas.ts'
import { sha256 } from '#api/auth/secrets.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { parsePkce, startFlow } from '#api/auth/sign-in/flow-states.ts'
import { findByLink } from '#api/auth/sign-in/one-time-tokens.ts'
import { inTransaction } from '#api/auth/store.ts'
import { lockUser } from '#api/auth/users/user-store.ts'
import type { ProviderId } from '#shared/config/provider-ids.ts'

import { type Binding, bindBrowser } from './browser-binding.ts'
import { requireLinking } from './link-to-user.ts'

type Query = Parsed<typeof AuthorizeQuery>

/** Redirects the browser to an external provider. */
export async function authorize(
  services: AuthServices,
  request: AuthRequest,
  query: Query,
): Promise<Answer> {
  return begin(services, request, { query })
}

/** Redirects a signed-in user to a provider, to add its identity to the account. */
export async function authorizeLinking(
  services: AuthServices,
  request: UserRequest,
  query: Query,
): Promise<Answer> {
  await requireLinking(services, request.caller)
  return begin(services, request, { query, linking: request.caller })
}

async function begin(
  services: AuthServices,
  request: AuthRequest,
  start: { readonly query: Query; readonly linking?: UserRequest['caller'] },
): Promise<Answer> {
  const { query, linking } = start
  if (!query.provider) {
    throw invalid('Unsupported provider: Provider could not be found', 'provider')
  }
  const provider = services.providers.get(query.provider.toLowerCase())
  const pkce = parsePkce(query)
  const inviteLinkSha256 = await checkInvite(services, query.invite_token)
  const providerCodeVerifier = randomBytes(32).toString('base64url')
  // Only a signed-in client may request the URL instead of the redirect.
  const isRedirect = linking === undefined || query.skip_http_redirect !== 'true'
  // The verifier binds a PKCE flow.
  const binding = pkce === undefined ? bindTo(services, request, provider) : undefined
  const { state } = await inTransaction(services.store, async (store) => {
    if (linking !== undefined) {
      // Ending the sessions of a user ends their flows, so no flow may begin afterwards.
      await lockUser(store, linking.user.id)
      await requireLiveSession(store, linking.session)
    }
    return startFlow(store, {
      provider: provider.id,
      authenticationMethod: 'oauth',
      pkce,
      referrer: request.redirectTo,
      providerCodeVerifier,
      linkingUserId: linking?.user.id,
      inviteLinkSha256,
      browserSecret: binding?.secret,
    })
  })
  const url = await provider.authorizationUrl({
    state,
    scopes: query.scopes ?? '',
    pkceChallenge: createHash('sha256').update(providerCodeVerifier).digest('base64url'),
    query: passedOn(query),
  })
  if (isRedirect) return redirect(url, 302, binding?.cookie)
  return json({ url }, binding && { 'set-cookie': binding.cookie })
}

function bindTo(
  services: AuthServices,
  request: AuthRequest,
  provider: Provider,
): Binding | undefined {
  const { providers } = services.config.external
  if (!Object.hasOwn(providers, provider.id)) return undefined
  const { redirectUri } = providers[provider.id as ProviderId]
  return bindBrowser(request.browser, { redirectUri, isFormPost: provider.isFormPost === true })
}

async function checkInvite(
  services: AuthServices,
  inviteToken: string | undefined,
): Promise<Buffer | undefined> {
  if (!inviteToken) return undefined
  const invite = await findByLink(services.store, inviteToken, ['confirmation'])
  if (invite === undefined) {
    const message = 'User identified by token not found'
    throw authFailure('user_not_found', { message, kind: 'notFound' })
  }
  return sha256(inviteToken)
}

// Our own parameters are removed; all others are passed on to the provider.
const OURS = new Set([
  'provider',
  'scopes',
  'invite_token',
  'skip_http_redirect',
  'code_challenge',
  'code_challenge_method',
  'redirect_to',
  'state',
  'client_id',
  'client_secret',
  'redirect_uri',
  'response_type',
])
const PASSED_ON_MAX = 20

function passedOn(query: Query): Record<string, string> {
  const entries = Object.entries(query as Record<string, unknown>).filter(
    (entry): entry is [string, string] => !OURS.has(entry[0]) && typeof entry[1] === 'string',
  )
  return Object.fromEntries(entries.slice(0, PASSED_ON_MAX))
}

/** SAML is not supported; clients expect this error. */
export async function sso(): Promise<Answer> {
  throw authFailure('saml_provider_disabled')
}
