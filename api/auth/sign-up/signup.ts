import { randomUUID } from 'node:crypto'

import { record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import {
  checkSendLimit,
  requireChannel,
  sendNothing,
  sendTokenMail,
} from '#api/auth/delivery/send-mail.ts'
import { sendTokenSms } from '#api/auth/delivery/send-sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { approveNewUser } from '#api/auth/hooks/new-user-hooks.ts'
import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import type { Parsed, SignupBody } from '#api/auth/schemas.ts'
import { type AuthServices, inOneTransaction } from '#api/auth/services.ts'
import { startSession, tokenResponse } from '#api/auth/sessions/start-session.ts'
import { type PkceChallenge, parsePkce } from '#api/auth/sign-in/flow-states.ts'
import { inTransaction } from '#api/auth/store.ts'
import {
  confirmContact,
  contactClaims,
  createAccount,
  isConfirmed,
  type NewAccount,
  signupMetadata,
} from '#api/auth/users/accounts.ts'
import { type Contact, parseContact } from '#api/auth/users/contact.ts'
import { mergeMetadata, presentUser, type UserWithParts } from '#api/auth/users/present-user.ts'
import { adoptAudience, findUserByContact, loadParts } from '#api/auth/users/user-store.ts'
import type { Metadata, UserRow } from '#shared/db/schema/auth.ts'

import { signInAnonymously } from './sign-in-anonymously.ts'

/** A parsed sign-up. */
interface Signup {
  readonly contact: Contact
  readonly passwordHash: string
  readonly data: Record<string, unknown> | undefined
  readonly channel: 'sms' | 'whatsapp'
  readonly pkce: PkceChallenge | undefined
  readonly isAutoconfirm: boolean
}

/** Creates a user; without address and number, an anonymous one. */
export async function signup(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof SignupBody>,
): Promise<Answer> {
  if (!body.email && !body.phone) return signInAnonymously(services, request, body.data)
  if (services.config.signup.isDisabled) throw authFailure('signup_disabled')
  const parsed = await parseSignup(services, body)
  // Checked before anything is stored, and for known contacts too: the limit must not reveal which
  // ones exist.
  if (!parsed.isAutoconfirm) {
    await services.addresses.requireDeliverable(parsed.contact)
    await checkSendLimit(services, request, parsed.contact)
  }
  const existing = await findUserByContact(services.store, parsed.contact)
  if (existing === undefined) return signUpNewUser(services, request, parsed)
  return signUpAgain(services, request, { parsed, existing })
}

async function parseSignup(
  services: AuthServices,
  body: Parsed<typeof SignupBody>,
): Promise<Signup> {
  const { config, log } = services
  if (!body.password) throw invalid('Signup requires a valid password', 'password')
  await checkPasswordRules(body.password, { config: config.password, log })
  const both = 'Only an email address or phone number should be provided on signup.'
  const contact = parseContact(body, { both, none: both })
  const pkce = parsePkce(body)
  if (contact.kind === 'phone' && pkce !== undefined) {
    throw invalid('PKCE not supported for phone signups', 'code_challenge')
  }
  const channel = contact.kind === 'phone' ? requireChannel(services, body.channel) : 'sms'
  if (contact.kind === 'email' && !config.signup.isEmailEnabled) {
    throw authFailure('email_provider_disabled')
  }
  if (contact.kind === 'phone' && !config.signup.isPhoneEnabled) {
    throw authFailure('phone_provider_disabled')
  }
  const isAutoconfirm =
    contact.kind === 'email' ? config.mailer.isAutoconfirm : config.sms.isAutoconfirm
  // Hashed before the user is looked up, so that the answer takes as long for known ones.
  const passwordHash = await services.passwords.hash(body.password)
  return { contact, passwordHash, data: body.data, channel, pkce, isAutoconfirm }
}

async function signUpNewUser(
  services: AuthServices,
  request: AuthRequest,
  parsed: Signup,
): Promise<Answer> {
  const { contact } = parsed
  const candidate = { ...contact, provider: contact.kind, userMetadata: parsed.data }
  const id = await approveNewUser(services, request, candidate)
  const account = { ...accountOf(parsed), id }
  if (parsed.isAutoconfirm) {
    const started = await inTransaction(services.store, async (store) => {
      const user = await createAccount(services, store, { account, request })
      if (user === undefined) return undefined
      await recordSignup(services, request, { store, user, contact })
      const confirmed = await confirmContact(store, user, contact.kind)
      return startSession(store, { user: confirmed, proof: { method: 'password' }, request })
    })
    if (started === undefined) throw authFailure('user_already_exists')
    return json(await tokenResponse(services, started))
  }
  return inOneTransaction(services, async (tx) => {
    const user = await createAccount(tx, tx.store, { account, request })
    // A concurrent request took the address.
    if (user === undefined) return json(madeUpUser(tx, request, parsed))
    return sendConfirmation(tx, request, { user, parsed })
  })
}

// If nothing needs confirmation, the user has the credentials at once.
function accountOf({ contact, passwordHash, data, isAutoconfirm }: Signup): NewAccount {
  const account = { contact, keepsIdentityClaims: true }
  return isAutoconfirm ? { ...account, passwordHash, data } : { ...account, isSignup: true }
}

async function signUpAgain(
  services: AuthServices,
  request: AuthRequest,
  again: { readonly parsed: Signup; readonly existing: UserRow },
): Promise<Answer> {
  const { parsed, existing } = again
  const { contact } = parsed
  if (!isConfirmed(existing, contact.kind)) {
    if (parsed.isAutoconfirm) throw authFailure('user_already_exists')
    return inOneTransaction(services, async (tx) => {
      await adoptAudience(tx.store, existing.id, request.audience)
      return sendConfirmation(tx, request, { user: existing, parsed })
    })
  }
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user: existing },
    action: 'user_repeated_signup',
    traits: { provider: contact.kind },
  })
  if (parsed.isAutoconfirm) throw authFailure('user_already_exists')
  // From here on the answer must equal that for a new user, including its limits.
  if (contact.kind === 'email') {
    const gapSeconds = services.config.smtp.confirmationGapSeconds
    await services.limits.takeContact('signup', contact.email, gapSeconds)
  }
  await sendNothing(services, request, contact)
  return json(madeUpUser(services, request, parsed))
}

async function sendConfirmation(
  services: AuthServices,
  request: AuthRequest,
  confirmation: { readonly user: UserRow; readonly parsed: Signup },
): Promise<Answer> {
  const { user, parsed } = confirmation
  const { contact, channel, pkce, passwordHash } = parsed
  const claims = contactClaims(user.id, contact, parsed.data)
  const userMetadata = signupMetadata(claims, contact.kind)
  const credentials = { passwordHash, userMetadata }
  if (contact.kind === 'phone') {
    const to = contact.phone
    const sms = { user, kind: 'phone_confirmation', to, channel, credentials } as const
    const sent = await sendTokenSms(services, request, sms)
    return json(presentSignup(await loadParts(services.store, sent.user), claims, userMetadata))
  }
  const mail = { user, name: 'confirmation', to: contact.email, pkce, credentials } as const
  const sent = await sendTokenMail(services, request, mail)
  await record(services, services.store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_confirmation_requested',
    traits: { provider: 'email' },
  })
  const parts = await loadParts(services.store, sent)
  // An administrator's metadata about an invited user must not be visible to every client that
  // knows the address.
  if (sent.invitedAt !== null) {
    return json({ ...presentUser(parts), user_metadata: {}, identities: [] })
  }
  return json(presentSignup(parts, claims, userMetadata))
}

// The user in the state after the confirmation, because clients expect the metadata they sent.
function presentSignup(
  parts: UserWithParts,
  claims: Metadata,
  userMetadata: Metadata,
): Record<string, unknown> {
  const identityData = mergeMetadata({}, claims)
  const identities = parts.identities.map((identity) =>
    identity.providerId === parts.user.id ? { ...identity, identityData } : identity,
  )
  return presentUser({ ...parts, user: { ...parts.user, userMetadata }, identities })
}

function recordSignup(
  services: AuthServices,
  request: AuthRequest,
  made: {
    readonly store: AuthServices['store']
    readonly user: UserRow
    readonly contact: Contact
  },
): Promise<void> {
  return record(services, made.store, {
    request,
    actor: { kind: 'user', user: made.user },
    action: 'user_signedup',
    traits: { provider: made.contact.kind },
  })
}

// The answer for taken addresses has the form of that for new ones. Applications recognize it by
// its empty list of identities; clients that only know the address learn nothing from the rest.
function madeUpUser(
  services: AuthServices,
  request: AuthRequest,
  parsed: Signup,
): Record<string, unknown> {
  const { contact } = parsed
  const id = randomUUID()
  const now = services.store.now().toISOString()
  return {
    id,
    aud: request.audience,
    role: services.config.jwt.defaultGroupName,
    email: contact.kind === 'email' ? contact.email : '',
    phone: contact.kind === 'phone' ? contact.phone : '',
    confirmation_sent_at: now,
    app_metadata: { provider: contact.kind, providers: [contact.kind] },
    user_metadata: signupMetadata(contactClaims(id, contact, parsed.data), contact.kind),
    identities: [],
    created_at: now,
    updated_at: now,
    is_anonymous: false,
  }
}
