import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import {
  claimMail,
  mintAndSendChange,
  requireAuthorized,
  type TokenMail,
} from '#api/auth/delivery/send-mail.ts'
import type { AuthServices } from '#api/auth/services.ts'
import type { PkceChallenge } from '#api/auth/sign-in/flow-states.ts'
import { clearOneTimeTokens } from '#api/auth/sign-in/one-time-tokens.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

/**
 * Records a change of address and asks the new address, and with secure changes also the current
 * one, to confirm it. It must run in one transaction with a lock on the user, so that a link only
 * confirms the change that it was created for.
 */
export async function requestEmailChange(
  services: AuthServices,
  request: AuthRequest,
  change: {
    readonly before: UserRow
    readonly newEmail: string
    readonly pkce: PkceChallenge | undefined
  },
): Promise<UserRow> {
  const { before, newEmail, pkce } = change
  const toNew = {
    user: before,
    name: 'emailChangeNew',
    to: newEmail,
    changeTo: newEmail,
    pkce,
  } as const
  const user = await claimMail(services, toNew, { emailChange: newEmail, emailChangeAgreed: 0 })
  await clearOneTimeTokens(services.store, user.id, EMAIL_CHANGE_KINDS)
  let toCurrent: TokenMail | undefined
  if (services.config.mailer.isSecureEmailChangeEnabled && user.email !== null) {
    requireAuthorized(services, user.email)
    const to = user.email
    toCurrent = { user, name: 'emailChangeCurrent', to, pkce, changeTo: newEmail }
  }
  await mintAndSendChange(services, request, { toNew: { ...toNew, user }, toCurrent })
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_modified',
    traits: { change: 'email_change_requested' },
  })
  return user
}

/** The one-time tokens of a change of address. */
export const EMAIL_CHANGE_KINDS = ['email_change_new', 'email_change_current'] as const
