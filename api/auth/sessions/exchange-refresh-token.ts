import { announce, record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import { authFailure, OAuthError } from '#api/auth/errors.ts'
import { describeRefresh } from '#api/auth/hooks/access-token-hook.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { inTransaction } from '#api/auth/store.ts'

import { type RotationOptions, type RotationOutcome, rotateRefreshToken } from './refresh-tokens.ts'
import { rotateInOneStatement } from './rotate-in-one-statement.ts'
import { tokenResponse } from './start-session.ts'

/** Grant `refresh_token`: a new access token, and the next refresh token. */
export async function exchangeRefreshToken(
  services: AuthServices,
  request: AuthRequest,
  body: { readonly refresh_token?: string },
): Promise<Answer> {
  if (!body.refresh_token) throw new OAuthError('invalid_request', 'refresh_token required')
  const presented = body.refresh_token
  const { security, sessions } = services.config
  const { userAgent, ip } = request
  const options = { security, sessions, userAgent, ip }
  const claims = await describeRefresh(services, presented)
  const rotated = await rotateInOneStatement(services.store, presented, options)
  if (rotated !== undefined) {
    announce(services, request, rotated.event)
    return json(await tokenResponse(services, { ...rotated.outcome, parts: rotated.parts, claims }))
  }
  const outcome = await rotateStepByStep(services, request, { presented, options })
  if (outcome.kind === 'refused') {
    throw authFailure(outcome.code, {
      kind: 'invalidRequest',
      ...(outcome.message !== '' && { message: outcome.message }),
    })
  }
  return json(await tokenResponse(services, { ...outcome, claims }))
}

// A refusal may come with a revocation that has to stay: it is thrown after the commit.
function rotateStepByStep(
  services: AuthServices,
  request: AuthRequest,
  rotation: { readonly presented: string; readonly options: RotationOptions },
): Promise<RotationOutcome> {
  return inTransaction(services.store, async (store) => {
    const result = await rotateRefreshToken(store, rotation.presented, rotation.options)
    if (result.kind === 'accepted') {
      const actor = { kind: 'user', user: result.user } as const
      await record(services, store, { request, actor, action: 'token_refreshed' })
      if (result.isRotated)
        await record(services, store, { request, actor, action: 'token_revoked' })
    }
    if (result.kind === 'refused' && result.reusedOf !== undefined) {
      const actor = { kind: 'user', user: result.reusedOf } as const
      await record(services, store, { request, actor, action: 'token_reuse_detected' })
    }
    return result
  })
}
