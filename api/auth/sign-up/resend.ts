import type { UserRow } from '#shared/db/schema/auth.ts'

import { json, type Answer, type AuthRequest } from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { parseContact, type Contact } from '#api/auth/users/contact.ts'
import { parsePkce, type PkceChallenge } from '#api/auth/sign-in/flow-states.ts'
import { inTransaction } from '#api/auth/store.ts'
import { findUserByContact, lockUser } from '#api/auth/users/users.ts'
import type { Parsed, ResendBody } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { isConfirmed } from '#api/auth/users/accounts.ts'
import { record } from '#api/auth/audit/record.ts'
import { insertDecoyUser, dryRun } from '#api/auth/dry-run.ts'
import { beginEmailChange, sendEmailChange } from '#api/auth/users/send-email-change.ts'
import { mintAndSend, requireEmailEnabled, sendTokenMail } from '#api/auth/delivery/send-mail.ts'
import { sendTokenSms } from '#api/auth/delivery/send-sms.ts'

const TYPES = {
  signup: 'email',
  email_change: 'email',
  sms: 'phone',
  phone_change: 'phone',
} as const

type ResendType = keyof typeof TYPES

/** Sends what waits for confirmation once more; `{}` too where nothing waits. */
export async function resend(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof ResendBody>,
): Promise<Answer> {
  const type = parseType(body.type)
  const contact = parseContact(body, {
    both: 'Only an email address or phone number should be provided.',
    none: 'Missing email address or phone number',
  })
  checkContact(type, contact)
  checkEnabled(services, contact)
  const pkce = parsePkce(body)
  const user = await findUserByContact(services.store, contact)
  if (user === undefined || !isPending(type, user)) {
    return pretend(services, request, { contact, pkce })
  }
  return services.pace.run(`resend.${contact.kind}`, async () => {
    if (type === 'signup') {
      const to = user.email as string
      const mail = { user, name: 'confirmation', to, pkce, credentials: 'kept' } as const
      await sendTokenMail(services, request, mail)
      await recordRequest(services, request, user)
      return json({})
    }
    if (type === 'email_change') {
      await resendEmailChange(services, request, { user, pkce })
      return json({})
    }
    const isChange = type === 'phone_change'
    const { messageId } = await sendTokenSms(services, request, {
      user,
      kind: isChange ? 'phone_change' : 'phone_confirmation',
      to: (isChange ? user.phoneChange : user.phone) as string,
      channel: 'sms',
      credentials: 'kept',
    })
    return json({ message_id: messageId })
  })
}

function parseType(type: string | undefined): ResendType {
  if (type !== undefined && Object.hasOwn(TYPES, type)) return type as ResendType
  throw invalid('Missing one of these types: signup, email_change, sms, phone_change', 'type')
}

function checkContact(type: ResendType, contact: Contact): void {
  if (TYPES[type] === contact.kind) return
  throw contact.kind === 'phone'
    ? invalid('Type provided requires an email address', 'email')
    : invalid('Type provided requires a phone number', 'phone')
}

function checkEnabled(services: AuthServices, contact: Contact): void {
  if (contact.kind === 'email') requireEmailEnabled(services, 'Email logins are disabled')
  else if (!services.config.signup.isPhoneEnabled) {
    throw authFailure('phone_provider_disabled', {
      message: 'Phone logins are disabled',
      kind: 'unprocessable',
    })
  }
}

function isPending(type: ResendType, user: UserRow): boolean {
  if (type === 'signup') return !isConfirmed(user, 'email')
  if (type === 'sms') return !isConfirmed(user, 'phone')
  return (type === 'email_change' ? user.emailChange : user.phoneChange) !== null
}

async function resendEmailChange(
  services: AuthServices,
  request: AuthRequest,
  asked: { readonly user: UserRow; readonly pkce: PkceChallenge | undefined },
): Promise<void> {
  const change = await inTransaction(services.store, async (store) => {
    const user = await lockUser(store, asked.user.id)
    const { emailChange: newEmail } = user
    // Confirmed at this very moment.
    if (newEmail === null) return undefined
    return beginEmailChange({ ...services, store }, user, { newEmail, pkce: asked.pkce })
  })
  if (change !== undefined) await sendEmailChange(services, request, change)
}

// Unknown addresses meet the limits of known ones, and the answer takes as long.
async function pretend(
  services: AuthServices,
  request: AuthRequest,
  asked: { readonly contact: Contact; readonly pkce: PkceChallenge | undefined },
): Promise<Answer> {
  const { contact, pkce } = asked
  await services.pace.imitate(`resend.${contact.kind}`, async () => {
    if (contact.kind === 'phone') return
    const gapSeconds = services.config.smtp.confirmationGapSeconds
    await services.limits.takeContact('resend', contact.email, gapSeconds)
    await dryRun(services, async (stage) => {
      const user = await insertDecoyUser(stage, request)
      const mail = { user, name: 'confirmation', to: user.email as string, pkce } as const
      await mintAndSend(stage, request, mail)
      await recordRequest(stage, request, user)
    })
  })
  return json({})
}

function recordRequest(services: AuthServices, request: AuthRequest, user: UserRow): Promise<void> {
  return record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_confirmation_requested',
  })
}
