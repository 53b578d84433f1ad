import { record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import {
  checkSendLimit,
  requireChannel,
  requireEmailEnabled,
  sendTokenMail,
} from '#api/auth/delivery/send-mail.ts'
import { sendTokenSms } from '#api/auth/delivery/send-sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { approveNewUser } from '#api/auth/hooks/new-user-hooks.ts'
import type { OtpBody, Parsed } from '#api/auth/schemas.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { inTransaction } from '#api/auth/store.ts'
import {
  confirmContact,
  contactClaims,
  createAccount,
  isConfirmed,
  signupMetadata,
} from '#api/auth/users/accounts.ts'
import { type Contact, parseContact } from '#api/auth/users/contact.ts'
import { adoptAudience, findUserByContact } from '#api/auth/users/user-store.ts'
import type { Metadata, UserRow } from '#shared/db/schema/auth.ts'

import { type PkceChallenge, parsePkce } from './flow-states.ts'
import type { PendingCredentials } from './one-time-tokens.ts'

interface Otp {
  readonly contact: Contact
  readonly createsUser: boolean
  readonly data: Metadata | undefined
  readonly channel: 'sms' | 'whatsapp'
  readonly pkce: PkceChallenge | undefined
}

/**
 * Sends a link or code for signing in. Unknown contacts are signed up unless `create_user` is
 * false.
 */
export async function otp(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof OtpBody>,
): Promise<Answer> {
  const contact = parseContact(body, {
    both: 'Only an email address or phone number should be provided',
    none: 'One of email or phone must be set',
    malformed: () => (body.create_user === false ? authFailure('otp_disabled') : undefined),
  })
  if (contact.kind === 'email' && body.channel) {
    throw invalid('Channel should only be specified with Phone OTP', 'channel')
  }
  return send(services, request, {
    contact,
    createsUser: body.create_user ?? true,
    data: body.data,
    channel: requireChannel(services, body.channel),
    pkce: parsePkce(body),
  })
}

/** The older endpoint for a link by email. */
export async function magicLink(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof OtpBody>,
): Promise<Answer> {
  if (!body.email) {
    throw authFailure('validation_failed', {
      message: 'Password recovery requires an email',
      kind: 'unprocessable',
      param: 'email',
    })
  }
  return otp(services, request, { ...body, phone: '', channel: '' })
}

async function send(services: AuthServices, request: AuthRequest, parsed: Otp): Promise<Answer> {
  const known = await findUserByContact(services.store, parsed.contact)
  if (known === undefined && !parsed.createsUser) throw authFailure('otp_disabled')
  checkEnabled(services, parsed.contact)
  await services.addresses.requireDeliverable(parsed.contact)
  await checkSendLimit(services, request, parsed.contact)
  if (known === undefined && services.config.signup.isDisabled) throw authFailure('signup_disabled')
  const { contact, data } = parsed
  const candidate = { ...contact, provider: contact.kind, userMetadata: data }
  const id = known === undefined ? await approveNewUser(services, request, candidate) : undefined
  return inOneTransaction(services, async (tx) => {
    const user = known ?? (await signUp(tx, request, parsed, id))
    if (known !== undefined) await adoptAudience(tx.store, known.id, request.audience)
    return parsed.contact.kind === 'email'
      ? sendMail(tx, request, { parsed, user, to: parsed.contact.email })
      : sendSms(tx, request, { parsed, user, to: parsed.contact.phone })
  })
}

function checkEnabled(services: AuthServices, contact: Contact): void {
  const { signup } = services.config
  if (contact.kind === 'phone' && !signup.isPhoneEnabled) {
    throw authFailure('phone_provider_disabled', { message: 'Unsupported phone provider' })
  }
  if (contact.kind === 'phone') return
  requireEmailEnabled(services, 'unprocessable')
  if (signup.isMagicLinkEnabled) return
  throw authFailure('email_provider_disabled', {
    message: 'Login with magic link is disabled',
    kind: 'unprocessable',
  })
}

// A user without a password: the token proves the ownership of the contact.
async function signUp(
  services: AuthServices,
  request: AuthRequest,
  parsed: Otp,
  id: string | undefined,
): Promise<UserRow> {
  const { contact } = parsed
  const { mailer, sms } = services.config
  const isAutoconfirm = contact.kind === 'email' ? mailer.isAutoconfirm : sms.isAutoconfirm
  const created = await inTransaction(services.store, async (store) => {
    const claims = { id, contact, keepsIdentityClaims: true }
    const account = isAutoconfirm ? { ...claims, data: parsed.data } : { ...claims, isSignup: true }
    const user = await createAccount(services, store, { account, request })
    if (user === undefined || !isAutoconfirm) return user
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'user_signedup',
      traits: { provider: contact.kind },
    })
    return confirmContact(store, user, contact.kind)
  })
  const user = created ?? (await findUserByContact(services.store, contact))
  if (user === undefined) throw authFailure('conflict', { message: 'Please try again.' })
  return user
}

interface Message {
  readonly parsed: Otp
  readonly user: UserRow
  readonly to: string
}

// No password, and only the metadata of this request.
function credentialsOf({ user, parsed }: Message): PendingCredentials {
  const { contact, data } = parsed
  return { userMetadata: signupMetadata(contactClaims(user.id, contact, data), contact.kind) }
}

async function sendMail(
  services: AuthServices,
  request: AuthRequest,
  message: Message,
): Promise<Answer> {
  const { user, to, parsed } = message
  const name = isConfirmed(user, 'email') ? 'magicLink' : 'confirmation'
  const credentials = name === 'confirmation' ? credentialsOf(message) : undefined
  await sendTokenMail(services, request, { user, name, to, pkce: parsed.pkce, credentials })
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: name === 'magicLink' ? 'user_recovery_requested' : 'user_confirmation_requested',
  })
  return json({})
}

async function sendSms(
  services: AuthServices,
  request: AuthRequest,
  message: Message,
): Promise<Answer> {
  const { user, to, parsed } = message
  const credentials = isConfirmed(user, 'phone') ? undefined : credentialsOf(message)
  const { channel } = parsed
  const sms = { user, kind: 'phone_confirmation', to, channel, credentials } as const
  const { messageId } = await sendTokenSms(services, request, sms)
  return json(messageId === '' ? {} : { message_id: messageId })
}
