import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { describeRaised } from '#api/auth/hooks/access-token-hook.ts'
import { judgeFactorAttempt } from '#api/auth/hooks/attempt-hooks.ts'
import type { FactorParams, FactorVerifyBody, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { replaceRefreshToken } from '#api/auth/sessions/refresh-tokens.ts'
import { endSessionsBelowAal2, findSession, raiseSession } from '#api/auth/sessions/sessions.ts'
import { tokenResponse } from '#api/auth/sessions/start-session.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { lockUser, maySignIn, withdrawContactChanges } from '#api/auth/users/user-store.ts'
import type { ChallengeRow, FactorRow, SessionRow } from '#shared/db/schema/auth.ts'

import { findProof, keepProof, parseGiven, wrongProof } from './factor-proof.ts'
import {
  consumeChallenge,
  countAttempt,
  findChallenge,
  listFactors,
  markFactorVerified,
} from './factors.ts'
import {
  getOwnFactor,
  parseChallengeId,
  requireNamedUser,
  requireVerifiable,
  unknownChallenge,
} from './own-factor.ts'

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
  const given = parseGiven(factor, body)
  if (session === undefined) throw authFailure('session_not_found')
  const challenge = await getChallenge(services, request, { factor, id: body.challenge_id })
  // Every challenge has its own attempts and new ones can be requested freely, so this counts them
  // together.
  await services.limits.takeOfAccount('verifications', { id: factor.id, network: request.network })
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'verification_attempted',
    traits: { factor_id: factor.id, challenge_id: challenge.id },
  })
  const { otpAttemptsMax } = services.config.rateLimits
  if (!(await countAttempt(services.store, challenge.id, otpAttemptsMax))) throw wrongProof(factor)
  const proof = await services.guesses.judge(
    { kind: 'factor', account: user.id, network: request.network },
    () => findProof(services, { factor, challenge, given }),
    (found) => found !== undefined,
  )
  await judgeFactorAttempt(services, request, { user, factor, isValid: proof !== undefined })
  if (proof === undefined) throw wrongProof(factor)
  const claims = await describeRaised(services, { user, session, method: methodOf(factor) })
  const started = await inTransaction(services.store, async (store) => {
    const locked = await lockUser(store, user.id)
    if (!maySignIn(locked, store.now())) throw authFailure('user_banned')
    if (!(await consumeChallenge(store, challenge.id))) throw authFailure('mfa_ip_address_mismatch')
    const proven = { factor, sessionId: session.id }
    const { current, isFirst } = await requireWelcome(services, store, proven)
    await keepProof(store, factor, proof)
    const raised = await raise(store, { factor, session: current })
    // A session with only a password may have requested them, before the user had a second factor.
    if (isFirst) await withdrawContactChanges(store, user.id)
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
 * The current session, if the factor may be verified in it, and whether the factor will be the
 * first verified one. A factor that was enrolled with only the password, before the owner had one,
 * must not bypass the owner's factor.
 */
async function requireWelcome(
  services: AuthServices,
  store: Store,
  proof: { readonly factor: FactorRow; readonly sessionId: string },
): Promise<{ readonly current: SessionRow; readonly isFirst: boolean }> {
  const { factor, sessionId } = proof
  const current = await findSession(store, sessionId)
  if (current === undefined) throw authFailure('session_not_found')
  const factors = await listFactors(store, current.userId)
  if (!factors.some(({ id }) => id === factor.id)) throw authFailure('mfa_factor_not_found')
  const others = factors.filter(({ id, status }) => id !== factor.id && status === 'verified')
  const isVerified = factor.status === 'verified'
  if (isVerified || others.length === 0) return { current, isFirst: !isVerified }
  if (current.aal !== 'aal2') throw authFailure('insufficient_aal')
  if (others.length >= services.config.mfa.verifiedFactorsMax) {
    throw authFailure('too_many_enrolled_mfa_factors')
  }
  return { current, isFirst: false }
}

async function getChallenge(
  services: AuthServices,
  request: UserRequest,
  wanted: { readonly factor: FactorRow; readonly id: string | undefined },
): Promise<ChallengeRow> {
  const { factor } = wanted
  requireVerifiable(services, factor)
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
  return factorType === 'totp' ? 'totp' : `mfa/${factorType}`
}
