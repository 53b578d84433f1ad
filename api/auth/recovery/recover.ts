import type { UserRow } from '#shared/db/schema/auth.ts'

import { json, type Answer, type AuthRequest } from '#api/auth/context.ts'
import { invalid } from '#api/auth/errors.ts'
import { parseEmail } from '#api/auth/users/contact.ts'
import { parsePkce } from '#api/auth/sign-in/flow-states.ts'
import { findUserByContact } from '#api/auth/users/users.ts'
import type { Parsed, RecoverBody } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { record } from '#api/auth/audit/record.ts'
import { insertDecoyUser, dryRun } from '#api/auth/dry-run.ts'
import { mintAndSend, requireEmailEnabled, sendTokenMail } from '#api/auth/delivery/send-mail.ts'

/** Sends a link for choosing a new password. The same answer for known and unknown addresses. */
export async function recover(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof RecoverBody>,
): Promise<Answer> {
  if (!body.email) throw invalid('Password recovery requires an email', 'email')
  const pkce = parsePkce(body)
  const email = parseEmail(body.email)
  requireEmailEnabled(services, 'Email logins are disabled')
  const user = await findUserByContact(services.store, { kind: 'email', email })
  if (user === undefined) {
    await services.pace.imitate('recover', async () => {
      await services.limits.takeContact('recover', email, services.config.smtp.linkGapSeconds)
      await dryRun(services, async (stage) => {
        const nobody = await insertDecoyUser(stage, request)
        const mail = { user: nobody, name: 'recovery', to: nobody.email as string, pkce } as const
        await mintAndSend(stage, request, mail)
        await recordRecovery(stage, request, nobody)
      })
    })
    return json({})
  }
  await services.pace.run('recover', async () => {
    await sendTokenMail(services, request, { user, name: 'recovery', to: email, pkce })
    await recordRecovery(services, request, user)
  })
  return json({})
}

function recordRecovery(
  services: AuthServices,
  request: AuthRequest,
  user: UserRow,
): Promise<void> {
  return record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_recovery_requested',
  })
}
