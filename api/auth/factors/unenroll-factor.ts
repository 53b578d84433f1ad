import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import type { FactorParams, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { lowerSessionsOfFactor, requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { inTransaction } from '#api/auth/store.ts'
import { lockUser } from '#api/auth/users/user-store.ts'

import { deleteFactor } from './factors.ts'
import { getOwnFactor, requireNamedUser } from './own-factor.ts'

/** Removes a second factor; sessions that depend on it fall back to the first level. */
export async function unenrollFactor(
  services: AuthServices,
  request: UserRequest,
  params: Parsed<typeof FactorParams>,
): Promise<Answer> {
  const { user, session } = request.caller
  requireNamedUser(user)
  const factor = await getOwnFactor(services, user, params.factor_id)
  if (factor.status === 'verified' && session?.aal !== 'aal2') {
    throw authFailure('insufficient_aal', {
      message: 'AAL2 required to unenroll verified factor',
      kind: 'unprocessable',
    })
  }
  await inTransaction(services.store, async (store) => {
    // If the factor is verified at the same time, sessions that may not remove it have ended.
    await lockUser(store, user.id)
    await requireLiveSession(store, session)
    await lowerSessionsOfFactor(store, factor)
    await deleteFactor(store, factor.id)
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'factor_unenrolled',
      traits: { factor_id: factor.id, factor_status: factor.status },
    })
  })
  return json({ id: factor.id })
}
