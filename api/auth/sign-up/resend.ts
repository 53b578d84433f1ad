import { record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import {
  checkSendLimit,
  requireEmailEnabled,
  sendNothing,
  sendTokenMail,
} from '#api/auth/delivery/send-mail.ts'
import { sendTokenSms } from '#api/auth/delivery/send-sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import type { Parsed, ResendBody } from '#api/auth/schemas.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { type PkceChallenge, parsePkce } from '#api/auth/sign-in/flow-states.ts'
import { isConfirmed } from '#api/auth/users/accounts.ts'
import { type Contact, parseContact } from '#api/auth/users/contact.ts'
import { requestEmailChange } from '#api/auth/users/send-email-change.ts'
import { findUserByContact, lockUser } from '#api/auth/users/user-store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

const TYPES = ['signup', 'email_change', 'sms', 'phone_change'] as const

type ResendType = (typeof TYPES)[number]

/** Sends a pending confirmation again; `{}` even if none is pending. */
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
  // Checked before any row is written or locked, for known and unknown contacts alike.
  await checkSendLimit(services, request, contact)
  await services.addresses.requireDeliverable(contact)
  const user = await findUserByContact(services.store, contact)
  if (user === undefined || !isPending(type, user)) return sendToNoUser(services, request, contact)
  return inOneTransaction(services, (tx) => sendAgain(tx, request, { type, user, pkce }))
}

async function sendAgain(
  services: AuthServices,
  request: AuthRequest,
  asked: {
    readonly type: ResendType
    readonly user: UserRow
    readonly pkce: PkceChallenge | undefined
  },
): Promise<Answer> {
  const { type, user, pkce } = asked
  if (type === 'signup') {
    const to = user.email as string
    const mail = { user, name: 'confirmation', to, pkce, credentials: 'kept' } as const
    await sendTokenMail(services, request, mail)
    await record(services, services.store, {
      request,
      actor: { kind: 'user', user },
      action: 'user_confirmation_requested',
    })
    return json({})
  }
  if (type === 'email_change') {
    const before = await lockUser(services.store, user.id)
    const { emailChange: newEmail } = before
    // A concurrent request may have confirmed the change.
    if (newEmail !== null) await requestEmailChange(services, request, { before, newEmail, pkce })
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
}

function parseType(type: string | undefined): ResendType {
  const known = TYPES.find((name) => name === type)
  if (known !== undefined) return known
  throw invalid('Missing one of these types: signup, email_change, sms, phone_change', 'type')
}

function checkContact(type: ResendType, contact: Contact): void {
  if (type === 'signup' && contact.kind === 'phone') {
    throw invalid('Type provided requires an email address', 'email')
  }
  if (type === 'sms' && contact.kind === 'email') {
    throw invalid('Type provided requires a phone number', 'phone')
  }
}

function checkEnabled(services: AuthServices, contact: Contact): void {
  if (contact.kind === 'email') requireEmailEnabled(services, 'invalidRequest')
  else if (!services.config.signup.isPhoneEnabled) {
    throw authFailure('phone_provider_disabled', { message: 'Phone logins are disabled' })
  }
}

function isPending(type: ResendType, user: UserRow): boolean {
  if (type === 'signup') return !isConfirmed(user, 'email')
  if (type === 'sms') return !isConfirmed(user, 'phone')
  return (type === 'email_change' ? user.emailChange : user.phoneChange) !== null
}

// Unknown email addresses are subject to the limits of known ones.
async function sendToNoUser(
  services: AuthServices,
  request: AuthRequest,
  contact: Contact,
): Promise<Answer> {
  if (contact.kind === 'email') {
    const gapSeconds = services.config.smtp.confirmationGapSeconds
    await services.limits.takeContact('resend', contact.email, gapSeconds)
    await sendNothing(services, request, contact)
  }
  return json({})
}
