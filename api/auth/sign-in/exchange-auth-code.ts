import { record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { linkToUser } from '#api/auth/external/link-to-user.ts'
import type { ExternalProfile } from '#api/auth/ports.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { startSession, tokenResponse } from '#api/auth/sessions/start-session.ts'
import { inTransaction } from '#api/auth/store.ts'
import { lockUser, maySignIn } from '#api/auth/users/user-store.ts'
import type { FlowStateRow, UserRow } from '#shared/db/schema/auth.ts'

import { findByAuthCode, finishFlow, isVerifierOf } from './flow-states.ts'

// Ends a linking flow. Only the client of the linking user knows the verifier.
async function linkVerified(
  services: AuthServices,
  request: AuthRequest,
  flow: FlowStateRow,
): Promise<UserRow | undefined> {
  const { linkingUserId: userId, linkingProfile, provider: providerId } = flow
  if (userId === null || linkingProfile === null) return undefined
  const profile = linkingProfile as ExternalProfile
  return linkToUser(services, request, { userId, visitor: { providerId, profile } })
}

/** Grant `pkce`: the code from the redirect URL and the verifier that only the client knows. */
export async function exchangeAuthCode(
  services: AuthServices,
  request: AuthRequest,
  body: { readonly auth_code?: string; readonly code_verifier?: string },
): Promise<Answer> {
  const { auth_code: authCode, code_verifier: verifier } = body
  if (!authCode || !verifier) {
    throw invalid('invalid request: both auth code and code verifier should be non-empty')
  }
  const flow = await findByAuthCode(services.store, authCode)
  if (flow === undefined || flow.userId === null) throw authFailure('flow_state_not_found')
  const issuedAt = (flow.authCodeIssuedAt ?? flow.createdAt).getTime()
  const ttlMs = services.config.external.flowStateTtlSeconds * 1000
  if (services.clock.now() > issuedAt + ttlMs) throw authFailure('flow_state_expired')
  if (!isVerifierOf(flow, verifier)) throw authFailure('bad_code_verifier')
  const userId = flow.userId
  const started = await inTransaction(services.store, async (store) => {
    const user = await lockUser(store, userId)
    if (!(await finishFlow(store, flow.id))) throw authFailure('flow_state_not_found')
    if (!maySignIn(user, store.now())) throw authFailure('user_banned')
    const linked = await linkVerified({ ...services, store }, request, flow)
    const actor = { kind: 'user', user } as const
    const traits = { provider: flow.provider }
    await record(services, store, { request, actor, action: 'login', traits })
    const proof = {
      method: flow.authenticationMethod,
      ...(flow.authenticationMethod === 'oauth' && { provider: flow.provider }),
    }
    return startSession(store, { user: linked ?? user, proof, request })
  })
  const { providerAccessToken, providerRefreshToken } = flow
  return json({
    ...(await tokenResponse(services, started)),
    ...(providerAccessToken !== null && { provider_token: providerAccessToken }),
    ...(providerRefreshToken !== null && { provider_refresh_token: providerRefreshToken }),
  })
}
