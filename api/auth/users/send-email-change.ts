import type { UserRow } from '#shared/db/schema/auth.ts'

import type { AuthRequest } from '#api/auth/context.ts'
import type { PkceChallenge } from '#api/auth/sign-in/flow-states.ts'
import { clearOneTimeTokens, consumeOneTimeToken } from '#api/auth/sign-in/one-time-tokens.ts'
import { updateUser } from './users.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { record } from '#api/auth/audit/record.ts'
import {
  claimMail,
  deliver,
  mintWithinLimit,
  requireAuthorized,
  type MintedMail,
  type TokenMail,
} from '#api/auth/delivery/send-mail.ts'

/** A stored email change whose mails are not sent yet. */
export interface EmailChange {
  readonly before: UserRow
  readonly user: UserRow
  readonly mails: readonly MintedMail[]
}

/**
 * Records a change of address and makes its tokens. It belongs into one transaction with a lock on
 * the user, so that a link confirms no other change than the one that it was made for.
 */
export async function beginEmailChange(
  services: AuthServices,
  before: UserRow,
  change: { readonly newEmail: string; readonly pkce: PkceChallenge | undefined },
): Promise<EmailChange> {
  const { newEmail, pkce } = change
  const toNew = {
    user: before,
    name: 'emailChangeNew',
    to: newEmail,
    changeTo: newEmail,
    pkce,
  } as const
  const user = await claimMail(services, toNew, { emailChange: newEmail, emailChangeAgreed: 0 })
  await clearOneTimeTokens(services.store, user.id, EMAIL_CHANGE_KINDS)
  const asked: TokenMail[] = [{ ...toNew, user }]
  if (services.config.mailer.isSecureEmailChangeEnabled && user.email !== null) {
    requireAuthorized(services, user.email)
    const toCurrent = { user, name: 'emailChangeCurrent', to: user.email, pkce } as const
    asked.push({ ...toCurrent, changeTo: newEmail })
  }
  const mails: MintedMail[] = []
  for (const mail of asked) {
    mails.push({ ...mail, minted: await mintWithinLimit(services, mail) })
  }
  return { before, user, mails }
}

/** The one-time tokens of a change of address. */
export const EMAIL_CHANGE_KINDS = ['email_change_new', 'email_change_current'] as const

/** Asks the new address, and with secure changes the current one too, to confirm the change. */
export async function sendEmailChange(
  services: AuthServices,
  request: AuthRequest,
  { before, user, mails }: EmailChange,
): Promise<void> {
  try {
    for (const mail of mails) await deliver(services, request, mail)
  } catch (error) {
    const { emailChange, emailChangeSentAt } = before
    await updateUser(services.store, user.id, { emailChange, emailChangeSentAt })
    for (const { minted } of mails) await consumeOneTimeToken(services.store, minted.id)
    throw error
  }
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_modified',
    traits: { change: 'email_change_requested' },
  })
}
