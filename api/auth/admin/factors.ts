import { record } from '#api/auth/audit/record.ts'
import { type AdminRequest, type Answer, json } from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { deleteFactor, listFactors, updateFactor } from '#api/auth/factors/factors.ts'
import { getOwnFactor } from '#api/auth/factors/own-factor.ts'
import type { AdminFactorBody, Parsed, UserFactorParams, UserParams } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { lowerSessionsOfFactor } from '#api/auth/sessions/sessions.ts'
import { inTransaction } from '#api/auth/store.ts'
import { parsePhone } from '#api/auth/users/contact.ts'
import { presentFactor } from '#api/auth/users/present-user.ts'
import { lockUser } from '#api/auth/users/user-store.ts'

import { getUser } from './user.ts'

/** The second factors of a user. */
export async function adminListFactors(
  services: AuthServices,
  _request: AdminRequest,
  params: Parsed<typeof UserParams>,
): Promise<Answer> {
  const user = await getUser(services, params.user_id)
  return json((await listFactors(services.store, user.id)).map(presentFactor))
}

/** Renames a factor, or changes its number. */
export async function adminUpdateFactor(
  services: AuthServices,
  request: AdminRequest,
  body: Parsed<typeof AdminFactorBody>,
  params: Parsed<typeof UserFactorParams>,
): Promise<Answer> {
  const user = await getUser(services, params.user_id)
  const factor = await getOwnFactor(services, user, params.factor_id)
  if (body.phone && factor.factorType !== 'phone') {
    throw invalid('Only phone factors have a number', 'phone')
  }
  const updated = await inTransaction(services.store, async (store) => {
    await lockUser(store, user.id)
    const changes = {
      ...(body.friendly_name && { friendlyName: body.friendly_name }),
      ...(body.phone && { phone: parsePhone(body.phone) }),
    }
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'factor_updated',
      traits: { user_id: user.id, factor_id: factor.id, factor_type: factor.factorType },
    })
    return updateFactor(store, factor.id, changes)
  })
  if (updated === undefined) throw authFailure('mfa_factor_not_found')
  return json(presentFactor(updated))
}

/** Deletes a second factor of a user. */
export async function adminDeleteFactor(
  services: AuthServices,
  request: AdminRequest,
  params: Parsed<typeof UserFactorParams>,
): Promise<Answer> {
  const user = await getUser(services, params.user_id)
  const factor = await getOwnFactor(services, user, params.factor_id)
  await inTransaction(services.store, async (store) => {
    // A session that the factor is raising at this moment is lowered too.
    await lockUser(store, user.id)
    await lowerSessionsOfFactor(store, factor)
    await deleteFactor(store, factor.id)
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'factor_deleted',
      traits: { user_id: user.id, factor_id: factor.id },
    })
  })
  return json(presentFactor(factor))
}
