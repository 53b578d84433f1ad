import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions } from '#api/auth/sessions/sessions.ts'
import type { FactorRow, UserRow } from '#shared/db/schema/auth.ts'

import type { HookAnswer } from './hooks.ts'

/**
 * Reports a sign-in attempt by password to the hook, right or wrong. Throws when the hook rejects
 * it.
 */
export async function judgePasswordAttempt(
  services: AuthServices,
  request: AuthRequest,
  attempt: { readonly user: UserRow; readonly isValid: boolean },
): Promise<void> {
  const { user, isValid } = attempt
  const hook = 'passwordVerificationAttempt'
  if (!services.hooks.isEnabled(hook)) return
  const answer = await services.hooks.invoke(hook, { user_id: user.id, valid: isValid })
  if (answer.decision !== 'reject') return
  await recordRejection(services, request, { user, hook })
  if (answer.should_logout_user === true) await signOut(services, user)
  const message = messageOf(answer, 'Further password verification attempts will be rejected.')
  throw authFailure('invalid_credentials', { message })
}

/**
 * Reports the proof of a second factor to the hook, right or wrong. A rejection ends every session
 * of the user.
 */
export async function judgeFactorAttempt(
  services: AuthServices,
  request: AuthRequest,
  attempt: { readonly user: UserRow; readonly factor: FactorRow; readonly isValid: boolean },
): Promise<void> {
  const { user, factor, isValid } = attempt
  const hook = 'mfaVerificationAttempt'
  if (!services.hooks.isEnabled(hook)) return
  const answer = await services.hooks.invoke(hook, {
    user_id: user.id,
    factor_id: factor.id,
    factor_type: factor.factorType,
    valid: isValid,
  })
  if (answer.decision !== 'reject') return
  await recordRejection(services, request, { user, hook })
  await signOut(services, user)
  const message = messageOf(answer, 'Further MFA verification attempts will be rejected.')
  throw authFailure('mfa_verification_rejected', { message })
}

const MESSAGE_CHARACTERS_MAX = 1000

function messageOf({ message }: HookAnswer, usual: string): string {
  const isGiven = typeof message === 'string' && message !== ''
  return isGiven ? message.slice(0, MESSAGE_CHARACTERS_MAX) : usual
}

function signOut(services: AuthServices, user: UserRow): Promise<void> {
  return endSessions(services.store, { userId: user.id, scope: 'global' })
}

function recordRejection(
  services: AuthServices,
  request: AuthRequest,
  rejected: { readonly user: UserRow; readonly hook: string },
): Promise<void> {
  const { user, hook } = rejected
  return record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'hook_rejected',
    traits: { hook },
  })
}
