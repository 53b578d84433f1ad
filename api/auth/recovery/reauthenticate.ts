import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { sendTokenMail } from '#api/auth/delivery/send-mail.ts'
import { sendTokenSms } from '#api/auth/delivery/send-sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { isConfirmed } from '#api/auth/users/accounts.ts'

/** Sends a nonce with which a password may be changed; by email where there is one. */
export async function reauthenticate(
  services: AuthServices,
  request: UserRequest,
): Promise<Answer> {
  const { user } = request.caller
  const { email, phone } = user
  if (email === null && phone === null) {
    throw invalid('Reauthentication requires the user to have an email or a phone number')
  }
  if (email !== null) {
    if (!isConfirmed(user, 'email')) throw unconfirmed('Please verify your email first.')
    await inOneTransaction(services, async (tx) => {
      await sendTokenMail(tx, request, { user, name: 'reauthentication', to: email })
      await record(tx, tx.store, {
        request,
        actor: { kind: 'user', user },
        action: 'user_reauthenticate_requested',
      })
    })
    return json({})
  }
  if (!isConfirmed(user, 'phone')) throw unconfirmed('Please verify your phone first.')
  const to = phone as string
  const sms = { user, kind: 'reauthentication', to, channel: 'sms' } as const
  const { messageId } = await sendTokenSms(services, request, sms)
  return json({ message_id: messageId })
}

function unconfirmed(message: string): Error {
  return authFailure('validation_failed', { message, kind: 'unprocessable' })
}
