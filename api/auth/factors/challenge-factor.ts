import { randomUUID } from 'node:crypto'

import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { requireChannel } from '#api/auth/delivery/send-mail.ts'
import { renderCode } from '#api/auth/delivery/send-sms.ts'
import { authFailure } from '#api/auth/errors.ts'
import { tooSoon } from '#api/auth/rate-limits.ts'
import type { ChallengeBody, FactorParams, Parsed } from '#api/auth/schemas.ts'
import { codeHmac, randomDigits } from '#api/auth/secrets.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import type { ChallengeRow, FactorRow } from '#shared/db/schema/auth.ts'

import { claimChallenge, insertChallenge } from './factors.ts'
import { getOwnFactor, requireNamedUser } from './own-factor.ts'

/** Asks for the proof of a second factor. */
export async function challengeFactor(
  services: AuthServices,
  request: UserRequest,
  body: Parsed<typeof ChallengeBody>,
  params: Parsed<typeof FactorParams>,
): Promise<Answer> {
  const { user } = request.caller
  requireNamedUser(user)
  const factor = await getOwnFactor(services, user, params.factor_id)
  checkEnabled(services, factor)
  const channel = requireChannel(services, body.channel)
  const isPhone = factor.factorType === 'phone'
  if (isPhone) services.sms.requireGateway(channel)
  const challenge = await inOneTransaction(services, (tx) =>
    createChallenge(tx, request, { factor, channel }),
  )
  const expiresAt = Math.floor(challenge.expiresAt.getTime() / 1000)
  return json({ id: challenge.id, type: factor.factorType, expires_at: expiresAt })
}

async function createChallenge(
  services: AuthServices,
  request: UserRequest,
  asked: { readonly factor: FactorRow; readonly channel: 'sms' | 'whatsapp' },
): Promise<ChallengeRow> {
  const { factor, channel } = asked
  const { mfa, jwt } = services.config
  const isPhone = factor.factorType === 'phone'
  const gapSeconds = isPhone ? mfa.phone.gapSeconds : 0
  if (!(await claimChallenge(services.store, factor.id, gapSeconds))) {
    throw tooSoon('sms', gapSeconds)
  }
  const id = randomUUID()
  const code = isPhone ? randomDigits(Math.max(6, Math.min(10, mfa.phone.otpLength))) : undefined
  const hmac = code === undefined ? null : codeHmac(jwt.secret, ['challenge', id], code)
  const challenge = await insertChallenge(
    services.store,
    { id, factorId: factor.id, codeHmac: hmac, ip: request.ip },
    mfa.challengeTtlSeconds,
  )
  if (code !== undefined) {
    await services.limits.takeSend('sms')
    const message = renderCode(mfa.phone.template, code)
    await services.outbox.write(services.store, {
      userId: factor.userId,
      purpose: `challenge ${factor.id}`,
      message: {
        channel: 'sms',
        sms: { to: factor.phone as string, message, channel, otp: code, type: 'mfa' },
      },
      expiresAt: challenge.expiresAt,
    })
  }
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user: request.caller.user },
    action: 'challenge_created',
    traits: { factor_id: factor.id, factor_status: factor.status },
  })
  return challenge
}

function checkEnabled(services: AuthServices, factor: FactorRow): void {
  const { mfa } = services.config
  if (factor.factorType === 'totp' && !mfa.totp.canVerify) {
    throw authFailure('mfa_totp_verify_not_enabled')
  }
  if (factor.factorType === 'phone' && !mfa.phone.canVerify) {
    throw authFailure('mfa_phone_verify_not_enabled')
  }
}
