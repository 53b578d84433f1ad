import type { UserRow } from '#shared/db/schema/auth.ts'

import type { AuthRequest } from '../context.ts'
import type { PkceChallenge } from '../identity/flow-states.ts'
import { updateUser } from '../identity/users.ts'
import type { AuthServices } from '../services.ts'
import { record } from './record.ts'
import { sendTokenMail } from './send-mail.ts'

/** Asks the new address, and with secure changes the current one too, to confirm the change. */
export async function sendEmailChange(
  services: AuthServices,
  request: AuthRequest,
  change: { readonly user: UserRow; readonly pkce: PkceChallenge | undefined },
): Promise<UserRow> {
  const { pkce } = change
  const newEmail = change.user.emailChange as string
  // What one side agreed to before was another change.
  const user = await updateUser(services.store, change.user.id, { emailChangeAgreed: 0 })
  const sent = await sendTokenMail(services, request, {
    user,
    name: 'emailChangeNew',
    to: newEmail,
    pkce,
  })
  if (services.config.mailer.isSecureEmailChangeEnabled && user.email !== null) {
    await sendTokenMail(services, request, {
      user: sent,
      name: 'emailChangeCurrent',
      to: user.email,
      pkce,
      isPaced: false,
    })
  }
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_modified',
    traits: { change: 'email_change_requested' },
  })
  return sent
}
