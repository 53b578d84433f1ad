import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { gatewayCheck } from '#api/auth/delivery/send-sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { describeRaised } from '#api/auth/hooks/access-token-hook.ts'
import { judgeFactorAttempt } from '#api/auth/hooks/attempt-hooks.ts'
import type { FactorParams, FactorVerifyBody, Parsed } from '#api/auth/schemas.ts'
import { codeHmac, isSameBytes } from '#api/auth/secrets.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { replaceRefreshToken } from '#api/auth/sessions/refresh-tokens.ts'
import { endSessionsBelowAal2, findSession, raiseSession } from '#api/auth/sessions/sessions.ts'
import { tokenResponse } from '#api/auth/sessions/start-session.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { lockUser, maySignIn } from '#api/auth/users/users.ts'
import type { ChallengeRow, FactorRow, SessionRow } from '#shared/db/schema/auth.ts'

import {
  acceptTotpStep,
  consumeChallenge,
  countAttempt,
  findChallenge,
  listFactors,
  markFactorVerified,
} from './factors.ts'
import { getOwnFactor, parseChallengeId, requireNamedUser, unknownChallenge } from './own-factor.ts'
import { findTotpStep } from './totp.ts'

/** Proves a second factor: the session rises to the second assurance level. */
export async function verifyFactor(
  services: AuthServices,
  request: UserRequest,
  body: Parsed<typeof FactorVerifyBody>,
  params: Parsed<typeof FactorParams>,
): Promise<Answer> {
  const { user, session } = request.caller
  requireNamedUser(user)
  const factor = await getOwnFactor(services, user, params.factor_id)
  if (!body.code) throw invalid('Code needs to be non-empty', 'code')
  if (session === undefined) throw authFailure('session_not_found')
  const challenge = await getChallenge(services, request, { factor, id: body.challenge_id })
  // Every challenge has its own tries and anybody may ask for the next: this counts them together.
  await services.limits.takeRequest('mfaChallengeAndVerify', 'factor', factor.id)
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'verification_attempted',
    traits: { factor_id: factor.id, challenge_id: challenge.id },
  })
  const { otpAttemptsMax } = services.config.rateLimits
  if (!(await countAttempt(services.store, challenge.id, otpAttemptsMax))) throw wrongCode(factor)
  const proof = { factor, challenge, code: body.code }
  const hasPassed = await services.guesses.judge(
    { kind: 'factor', account: user.id, network: request.network },
    () => isRight(services, proof),
    (passed) => passed,
  )
  await judgeFactorAttempt(services, request, { user, factor, isValid: hasPassed })
  if (!hasPassed) throw wrongCode(factor)
  const claims = await describeRaised(services, { user, session, method: methodOf(factor) })
  const started = await inTransaction(services.store, async (store) => {
    const locked = await lockUser(store, user.id)
    if (!maySignIn(locked, store.now())) throw authFailure('user_banned')
    if (!(await consumeChallenge(store, challenge.id))) throw authFailure('mfa_ip_address_mismatch')
    const current = await requireWelcome(services, store, { factor, sessionId: session.id })
    const raised = await raise(store, { factor, session: current })
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'mfa_code_login',
      traits: { factor_id: factor.id },
    })
    return { user: locked, ...raised, claims }
  })
  return json(await tokenResponse(services, started))
}

/**
 * The current session, if the factor may be verified in it. A factor that was enrolled with the
 * password only, before the owner had one, must not bypass the owner's factor.
 */
async function requireWelcome(
  services: AuthServices,
  store: Store,
  proof: { readonly factor: FactorRow; readonly sessionId: string },
): Promise<SessionRow> {
  const { factor, sessionId } = proof
  const session = await findSession(store, sessionId)
  if (session === undefined) throw authFailure('session_not_found')
  const factors = await listFactors(store, session.userId)
  if (!factors.some(({ id }) => id === factor.id)) throw authFailure('mfa_factor_not_found')
  const others = factors.filter(({ id, status }) => id !== factor.id && status === 'verified')
  if (factor.status === 'verified' || others.length === 0) return session
  if (session.aal !== 'aal2') throw authFailure('insufficient_aal')
  if (others.length >= services.config.mfa.verifiedFactorsMax) {
    throw authFailure('too_many_enrolled_mfa_factors')
  }
  return session
}

async function getChallenge(
  services: AuthServices,
  request: UserRequest,
  wanted: { readonly factor: FactorRow; readonly id: string | undefined },
): Promise<ChallengeRow> {
  const { factor } = wanted
  const { mfa } = services.config
  const canVerify = factor.factorType === 'totp' ? mfa.totp.canVerify : mfa.phone.canVerify
  if (!canVerify) {
    const isTotp = factor.factorType === 'totp'
    throw authFailure(isTotp ? 'mfa_totp_verify_not_enabled' : 'mfa_phone_verify_not_enabled')
  }
  const id = parseChallengeId(wanted.id)
  const challenge = await findChallenge(services.store, factor.id, id)
  if (challenge === undefined) throw unknownChallenge()
  if (challenge.verifiedAt !== null || challenge.ip !== request.ip) {
    throw authFailure('mfa_ip_address_mismatch')
  }
  if (challenge.expiresAt <= services.store.now()) {
    throw authFailure('mfa_challenge_expired', {
      message: `MFA challenge ${challenge.id} has expired, verify against another challenge or create a new challenge.`,
    })
  }
  return challenge
}

async function isRight(
  services: AuthServices,
  proof: { readonly factor: FactorRow; readonly challenge: ChallengeRow; readonly code: string },
): Promise<boolean> {
  const { factor, challenge, code } = proof
  if (factor.factorType === 'phone') {
    const phone = factor.phone as string
    const ask = gatewayCheck(services, { kind: 'phone', phone }, code)
    if (ask !== undefined) return ask()
    const hmac = codeHmac(services.config.jwt.secret, ['challenge', challenge.id], code)
    return challenge.codeHmac !== null && isSameBytes(challenge.codeHmac, hmac)
  }
  const step = findTotpStep(factor.secret as string, code, services.clock.now())
  if (step === undefined) return false
  // A code that was watched while it was typed is worth nothing a second time. Only the one that
  // finishes the enrolment may be used once more: the sign-in after it comes within its 30 seconds.
  return factor.status === 'unverified' || acceptTotpStep(services.store, factor.id, step)
}

function wrongCode(factor: FactorRow): Error {
  const message =
    factor.factorType === 'totp' ? 'Invalid TOTP code entered' : 'Invalid MFA Phone code entered'
  return authFailure('mfa_verification_failed', { message, param: 'code' })
}

async function raise(
  store: Store,
  proof: { readonly factor: FactorRow; readonly session: SessionRow },
): Promise<{ session: SessionRow; refreshToken: string }> {
  const { factor, session } = proof
  const method = methodOf(factor)
  const refreshToken = await replaceRefreshToken(store, session.id)
  const raised = await raiseSession(store, session, { method, factorId: factor.id })
  await markFactorVerified(store, factor)
  await endSessionsBelowAal2(store, session.userId, session.id)
  return { session: raised, refreshToken }
}

function methodOf({ factorType }: FactorRow): string {
  return factorType === 'totp' ? 'totp' : 'mfa/phone'
}
