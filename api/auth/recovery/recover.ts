import { record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import {
  checkSendLimit,
  requireEmailEnabled,
  sendNothing,
  sendTokenMail,
} from '#api/auth/delivery/send-mail.ts'
import { invalid } from '#api/auth/errors.ts'
import type { Parsed, RecoverBody } from '#api/auth/schemas.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { parsePkce } from '#api/auth/sign-in/flow-states.ts'
import { parseEmail } from '#api/auth/users/contact.ts'
import { findUserByContact } from '#api/auth/users/user-store.ts'

/**
 * Sends a link for choosing a new password. The answer is the same for known and unknown addresses.
 */
export async function recover(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof RecoverBody>,
): Promise<Answer> {
  if (!body.email) throw invalid('Password recovery requires an email', 'email')
  const pkce = parsePkce(body)
  const email = parseEmail(body.email)
  requireEmailEnabled(services, 'invalidRequest')
  // Checked before any row is written or locked, for known and unknown addresses alike.
  await checkSendLimit(services, request, { kind: 'email', email })
  await services.addresses.requireDeliverable({ kind: 'email', email })
  const user = await findUserByContact(services.store, { kind: 'email', email })
  if (user === undefined) {
    await services.limits.takeContact('recover', email, services.config.smtp.linkGapSeconds)
    await sendNothing(services, request, { kind: 'email', email })
    return json({})
  }
  await inOneTransaction(services, async (tx) => {
    await sendTokenMail(tx, request, { user, name: 'recovery', to: email, pkce })
    await record(tx, tx.store, {
      request,
      actor: { kind: 'user', user },
      action: 'user_recovery_requested',
    })
  })
  return json({})
}
