import { findInvitation } from '#api/auth/admin/invite.ts'
import { type Answer, type AuthRequest, redirect } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import type { ExternalProfile } from '#api/auth/ports.ts'
import { withFragment, withQuery } from '#api/auth/redirects/redirect-url.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { startSession, tokenFragment, tokenResponse } from '#api/auth/sessions/start-session.ts'
import { issueAuthCode, redeemState } from '#api/auth/sign-in/flow-states.ts'
import { inTransaction } from '#api/auth/store.ts'
import type { FlowStateRow, UserRow } from '#shared/db/schema/auth.ts'
import { failure, ServiceError } from '#shared/errors.ts'

import { isBoundTo, isOwnState } from './browser-binding.ts'
import { decideAccount } from './external-account.ts'
import { linkToUser, requireLinkable } from './link-to-user.ts'
import { redirectWithError } from './redirect-with-error.ts'

const STATE_TTL_SECONDS = 300

/** The route that providers redirect back to. Always ends in a redirect to the application. */
export async function callback(
  services: AuthServices,
  request: AuthRequest,
  fields: Readonly<Record<string, string>>,
): Promise<Answer> {
  const { external, site } = services.config
  let flow: FlowStateRow | undefined
  let target = external.redirectUrl || site.url
  try {
    flow = await findFlow(services, request, fields.state)
    target = external.redirectUrl || flow.referrer || site.url
    const profile = await askProvider(services, flow, fields)
    return await finish(services, request, { flow, profile, target })
  } catch (error) {
    services.log.info(
      { operation: 'auth.callback', code: (error as { code?: string }).code },
      'external sign-in failed',
    )
    return redirectWithError(target, error, { isInQueryToo: true, status: flow ? 302 : 303 })
  }
}

async function findFlow(
  services: AuthServices,
  request: AuthRequest,
  state: string | undefined,
): Promise<FlowStateRow> {
  if (!state) {
    throw authFailure('bad_oauth_callback', { message: 'OAuth state parameter missing' })
  }
  if (!isOwnState(state, request.browser)) throw authFailure('bad_oauth_state')
  const flow = await redeemState(services.store, state, STATE_TTL_SECONDS)
  if (flow === undefined) throw authFailure('bad_oauth_state')
  const isImplicitLinking = flow.linkingUserId !== null && flow.codeChallenge === null
  // Another person may have opened the URL; their identity must not be linked.
  if (isImplicitLinking && !isBoundTo(state, request.browser)) {
    const message =
      'Linking an identity must end in the browser that began it, or use the PKCE flow (code_challenge)'
    throw authFailure('bad_oauth_state', { message })
  }
  return flow
}

async function askProvider(
  services: AuthServices,
  flow: FlowStateRow,
  fields: Readonly<Record<string, string>>,
): Promise<ExternalProfile> {
  if (fields.error) throw refusalOf(fields.error, fields.error_description)
  // OAuth 1.0a has no error codes: a refused request token is returned under this name.
  if (fields.denied) throw refusalOf('access_denied', 'The user denied the request')
  const code = fields.code || fields.oauth_verifier || ''
  if (code === '') {
    throw authFailure('bad_oauth_callback', {
      message: 'OAuth callback with missing authorization code missing',
    })
  }
  const provider = services.providers.get(flow.provider)
  const codeVerifier = flow.providerCodeVerifier
  try {
    return await provider.exchange({
      code,
      query: { ...fields },
      ...(codeVerifier !== null && { codeVerifier }),
    })
  } catch (error) {
    if (error instanceof ServiceError && error.kind !== 'internal') throw error
    const message = `Unable to exchange external code: ${code.slice(0, 64)}`
    throw failure.internal(message, { code: 'unexpected_failure', cause: error })
  }
}

// The provider's words are shown in the application's URL. They are cut, because they are foreign
// text.
function refusalOf(word: string, description: string | undefined): ServiceError {
  const isDenied = word === 'access_denied'
  return new ServiceError(
    isDenied ? 'accessDenied' : word === 'server_error' ? 'internal' : 'invalidRequest',
    (description || word).slice(0, 500),
    { code: word.slice(0, 64) },
  )
}

interface Finish {
  readonly flow: FlowStateRow
  readonly profile: ExternalProfile
  readonly target: string
}

async function finish(
  services: AuthServices,
  request: AuthRequest,
  { flow, profile, target }: Finish,
): Promise<Answer> {
  const { linkingUserId: userId, provider: providerId } = flow
  const linking =
    userId === null ? undefined : { userId, flowId: flow.id, visitor: { providerId, profile } }
  const { providerAccessToken, providerRefreshToken } = profile
  if (linking !== undefined && flow.codeChallenge !== null) {
    await requireLinkable(services.store, linking)
    const authCode = await issueAuthCode(services.store, flow.id, {
      userId: linking.userId,
      linkingProfile: {
        ...profile,
        providerAccessToken: undefined,
        providerRefreshToken: undefined,
      },
      providerAccessToken,
      providerRefreshToken,
    })
    return redirect(withQuery(target, { code: authCode }), 302)
  }
  const user =
    linking === undefined
      ? await signIn(services, request, { flow, profile })
      : await linkToUser(services, request, linking)
  if (flow.codeChallenge !== null) {
    const authCode = await issueAuthCode(services.store, flow.id, {
      userId: user.id,
      providerAccessToken,
      providerRefreshToken,
    })
    return redirect(withQuery(target, { code: authCode }), 302)
  }
  const proof = { method: 'oauth', provider: flow.provider }
  const started = await inTransaction(services.store, (store) =>
    startSession(store, { user, proof, request }),
  )
  const fragment = {
    ...tokenFragment(await tokenResponse(services, started)),
    provider: flow.provider,
    ...(providerAccessToken !== undefined && { provider_token: providerAccessToken }),
    ...(providerRefreshToken !== undefined && { provider_refresh_token: providerRefreshToken }),
  }
  return redirect(withFragment(target, fragment), 302)
}

async function signIn(
  services: AuthServices,
  request: AuthRequest,
  arrival: { readonly flow: FlowStateRow; readonly profile: ExternalProfile },
): Promise<UserRow> {
  const { flow, profile } = arrival
  const invitation =
    flow.inviteLinkSha256 === null
      ? undefined
      : await findInvitation(services.store, flow.inviteLinkSha256)
  if (flow.inviteLinkSha256 !== null && invitation === undefined) {
    throw authFailure('invite_not_found')
  }
  const visitor = { providerId: flow.provider, profile, invitation }
  const { user } = await decideAccount(services, request, visitor)
  return user
}
