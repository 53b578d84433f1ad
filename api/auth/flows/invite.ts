import { json, type AdminRequest, type Answer } from '../context.ts'
import { authFailure, invalid } from '../errors.ts'
import { parseEmail } from '../identity/contact.ts'
import { presentUser } from '../identity/present-user.ts'
import { inTransaction } from '../identity/store.ts'
import { findUserByContact, loadParts } from '../identity/users.ts'
import type { InviteBody, Parsed } from '../schemas.ts'
import type { AuthServices } from '../services.ts'
import { inviteAccount, isConfirmed } from '../steps/accounts.ts'
import { record } from '../steps/record.ts'
import { sendTokenMail } from '../steps/send-mail.ts'

/** Makes a user and sends an invitation; also when signing up is switched off. */
export async function invite(
  services: AuthServices,
  request: AdminRequest,
  body: Parsed<typeof InviteBody>,
): Promise<Answer> {
  if (!body.email) throw invalid('An email address is required', 'email')
  const email = parseEmail(body.email)
  const user = await inTransaction(services.store, async (store) => {
    const known = await findUserByContact(store, { kind: 'email', email })
    if (known !== undefined && isConfirmed(known, 'email')) return undefined
    const invitation = { email, known, data: body.data, request }
    const invited = await inviteAccount(services, store, invitation)
    if (invited === undefined) return undefined
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'user_invited',
      traits: { user_id: invited.id, user_email: email },
    })
    return invited
  })
  if (user === undefined) throw authFailure('email_exists')
  const mail = { user, name: 'invite', to: email, isPaced: false } as const
  const sent = await sendTokenMail(services, request, mail)
  return json(presentUser(await loadParts(services.store, sent)))
}
