import type { Actor } from '#api/auth/audit/audit-log.ts'
import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import { sendTokenMail } from '#api/auth/delivery/send-mail.ts'
import { authFailure } from '#api/auth/errors.ts'
import { approveNewUser } from '#api/auth/hooks/new-user-hooks.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { inviteAccount, isConfirmed } from '#api/auth/users/accounts.ts'
import { findUserByContact, findUserById, updateUser } from '#api/auth/users/user-store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'
import { failure } from '#shared/errors.ts'

/** An invitation to something outside the user server, which its redirect target identifies. */
export interface Invitation {
  readonly email: string
  /** The inviting user; undefined for a key of the operator. */
  readonly inviterId: string | undefined
  /** Additional template variables. */
  readonly data: Readonly<Record<string, unknown>>
}

/**
 * Mails an invitation. Confirmed users get a sign-in link; for other addresses an account is
 * created, which the link confirms. Throws where users confirm no addresses and the address has an
 * account, because anyone may have created that.
 */
export async function sendInvitation(
  services: AuthServices,
  request: AuthRequest,
  { email, inviterId, data }: Invitation,
): Promise<void> {
  await services.addresses.requireDeliverable({ kind: 'email', email })
  const known = await findUserByContact(services.store, { kind: 'email', email })
  if (known !== undefined && isConfirmed(known, 'email')) {
    if (services.config.mailer.isAutoconfirm) throw unproven()
    const variables = { ...data, has_account: true }
    await sendTokenMail(services, request, {
      user: known,
      name: 'invitation',
      to: email,
      data: variables,
    })
    return
  }
  const inviter =
    inviterId === undefined ? undefined : await findUserById(services.store, inviterId)
  const actor: Actor =
    inviter === undefined ? { kind: 'admin', role: 'api_key' } : { kind: 'user', user: inviter }
  const variables = { ...data, has_account: false }
  const candidate = { provider: 'email', email }
  const id = known === undefined ? await approveNewUser(services, request, candidate) : undefined
  await inOneTransaction(services, async (tx) => {
    const user = await inviteStranger(tx, request, { id, email, known, actor })
    await sendTokenMail(tx, request, { user, name: 'invite', to: email, data: variables })
  })
}

function unproven(): Error {
  return failure.invalidRequest(
    "Users do not confirm their addresses here, and one has signed up with this address already. Send 'user_id' instead.",
    { param: 'email', code: 'unconfirmed_email' },
  )
}

async function inviteStranger(
  services: AuthServices,
  request: AuthRequest,
  stranger: {
    readonly id: string | undefined
    readonly email: string
    readonly known: UserRow | undefined
    readonly actor: Actor
  },
): Promise<UserRow> {
  const { id, email, known, actor } = stranger
  // Any user may invite, so an unconfirmed account loses nothing before the link is followed.
  const invited =
    known === undefined
      ? await inviteAccount(services, services.store, { id, email, known, request })
      : await updateUser(services.store, known.id, { invitedAt: services.store.now() })
  // A concurrent sign-up took the address.
  if (invited === undefined) throw authFailure('email_exists')
  const traits = { user_id: invited.id, user_email: email }
  await record(services, services.store, { request, actor, action: 'user_invited', traits })
  return invited
}
