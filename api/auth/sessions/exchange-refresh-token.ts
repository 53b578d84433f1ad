import { announce, record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import { authFailure, OAuthError } from '#api/auth/errors.ts'
import { describeRefresh } from '#api/auth/hooks/access-token-hook.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { inTransaction } from '#api/auth/store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

import {
  hasSessionRules,
  presentRefreshToken,
  type RotationOptions,
  type RotationOutcome,
} from './refresh-tokens.ts'
import { rotateValidToken } from './rotation-store.ts'
import { tokenResponse } from './start-session.ts'

/** Grant `refresh_token`: a new access token, and the next refresh token. */
export async function exchangeRefreshToken(
  services: AuthServices,
  request: AuthRequest,
  body: { readonly refresh_token?: string },
): Promise<Answer> {
  if (!body.refresh_token) throw new OAuthError('invalid_request', 'refresh_token required')
  const presented = body.refresh_token
  const { security, sessions, rateLimits } = services.config
  const { userAgent, ip } = request
  const perHourMax = rateLimits.sessionRefreshesPerHour
  const options = { security, sessions, userAgent, ip, perHourMax }
  const claims = await describeRefresh(services, presented)
  const outcome = await rotate(services, request, { presented, options })
  if (outcome.kind === 'refused') {
    throw authFailure(outcome.code, {
      kind: 'invalidRequest',
      ...(outcome.message !== '' && { message: outcome.message }),
    })
  }
  if (outcome.kind === 'rotated') announce(services, request, outcome.event)
  return json(await tokenResponse(services, { ...outcome, claims }))
}

/** The tabs and devices of a user may all repeat a refresh at once. */
const CLIENTS_OF_USER = 10

async function rotate(
  services: AuthServices,
  request: AuthRequest,
  rotation: { readonly presented: string; readonly options: RotationOptions },
): Promise<RotationOutcome> {
  const { presented, options } = rotation
  if (!hasSessionRules(options.sessions)) {
    const rotated = await rotateValidToken(services.store, presented, options)
    if (rotated !== undefined) return { kind: 'rotated', ...rotated }
  }
  // A refusal may include a revocation that must persist, so it is thrown after the commit.
  return inTransaction(services.store, async (store) => {
    const result = await presentRefreshToken(store, presented, options)
    // An exchanged refresh token can be presented at any rate, and each time is in the audit log.
    const take = (bucket: string, { id }: UserRow) =>
      services.limits.takeRequest('tokenRefresh', bucket, id, CLIENTS_OF_USER)
    if (result.kind === 'repeated') {
      await take('repeated refresh', result.user)
      const actor = { kind: 'user', user: result.user } as const
      await record(services, store, { request, actor, action: 'token_refreshed' })
    }
    if (result.kind === 'refused' && result.reusedOf !== undefined) {
      const actor = { kind: 'user', user: result.reusedOf } as const
      // Only entries are limited, because an error would undo the revocation.
      const isRecorded = await take('reused refresh', result.reusedOf).then(
        () => true,
        () => false,
      )
      if (isRecorded) {
        await record(services, store, { request, actor, action: 'token_reuse_detected' })
      }
    }
    return result
  })
}
