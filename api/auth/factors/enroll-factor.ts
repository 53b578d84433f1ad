import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import type { FactorBody, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { inTransaction } from '#api/auth/store.ts'
import { parsePhone } from '#api/auth/users/contact.ts'
import { lockUser } from '#api/auth/users/user-store.ts'
import type { FactorRow } from '#shared/db/schema/auth.ts'

import { deleteStaleFactors, insertFactor, listFactors } from './factors.ts'
import { requireNamedUser } from './own-factor.ts'
import { createTotp, type TotpEnrolment } from './totp.ts'

type NewFactor = Pick<FactorRow, 'userId' | 'friendlyName' | 'factorType' | 'secret' | 'phone'>

/** Enrols a second factor: an authenticator to scan, a phone, or a credential of the browser. */
export async function enrollFactor(
  services: AuthServices,
  request: UserRequest,
  body: Parsed<typeof FactorBody>,
): Promise<Answer> {
  const { user } = request.caller
  requireNamedUser(user)
  // The number of factors is limited below, but each attempt draws a QR code, which blocks the
  // event loop.
  await services.limits.takeOfAccount('enrolments', { id: user.id, network: request.network })
  const type = parseType(services, body.factor_type)
  const friendlyName = body.friendly_name ?? ''
  const base = { userId: user.id, friendlyName, factorType: type }
  if (type === 'phone') {
    const phone = parsePhone(body.phone ?? '')
    const factor = await add(services, request, { ...base, secret: null, phone })
    return json({ id: factor.id, type, friendly_name: friendlyName, phone })
  }
  if (type === 'webauthn') {
    const factor = await add(services, request, { ...base, secret: null, phone: null })
    return json({ id: factor.id, type, friendly_name: friendlyName })
  }
  const issuer = body.issuer || new URL(services.config.site.url).host
  const totp = await createTotp(issuer, user.email ?? user.phone ?? user.id)
  const factor = await add(services, request, { ...base, secret: totp.secret, phone: null })
  return json({ id: factor.id, type, friendly_name: friendlyName, totp: presentTotp(totp) })
}

function presentTotp(totp: TotpEnrolment): Record<string, string> {
  return { qr_code: totp.qrCodeSvg, secret: totp.secret, uri: totp.uri }
}

function parseType(services: AuthServices, type: string | undefined): FactorRow['factorType'] {
  if (type !== 'totp' && type !== 'phone' && type !== 'webauthn') {
    throw invalid('factor_type needs to be totp, phone, or webauthn', 'factor_type')
  }
  if (!services.config.mfa[type].canEnroll) throw authFailure(`mfa_${type}_enroll_not_enabled`)
  return type
}

async function add(
  services: AuthServices,
  request: UserRequest,
  fields: NewFactor,
): Promise<FactorRow> {
  const { user, session } = request.caller
  const { mfa } = services.config
  return inTransaction(services.store, async (store) => {
    // The lock enforces the limits for concurrent enrolments.
    await lockUser(store, user.id)
    await requireLiveSession(store, session)
    await deleteStaleFactors(store, user.id, mfa.factorTtlSeconds)
    const factors = await listFactors(store, user.id)
    const verified = factors.filter((factor) => factor.status === 'verified')
    const isFull =
      factors.length >= mfa.enrolledFactorsMax || verified.length >= mfa.verifiedFactorsMax
    if (isFull) throw authFailure('too_many_enrolled_mfa_factors')
    if (verified.length > 0 && session?.aal !== 'aal2') throw authFailure('insufficient_aal')
    checkPhone(factors, fields)
    const isNameTaken = factors.some((factor) => factor.friendlyName === fields.friendlyName)
    const factor = isNameTaken ? undefined : await insertFactor(store, fields)
    if (factor === undefined) {
      throw authFailure('mfa_factor_name_conflict', {
        message: `A factor with the friendly name "${fields.friendlyName}" for this user already exists`,
      })
    }
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'factor_in_progress',
      traits: { factor_id: factor.id, factor_type: factor.factorType },
    })
    return factor
  })
}

function checkPhone(factors: readonly FactorRow[], fields: NewFactor): void {
  if (fields.factorType !== 'phone') return
  const twin = factors.find(
    (factor) => factor.phone === fields.phone && factor.status === 'verified',
  )
  if (twin !== undefined) throw authFailure('mfa_verified_factor_exists')
}
