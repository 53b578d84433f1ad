import { record } from '#api/auth/audit/record.ts'
import { type AdminRequest, type Answer, json } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import type { AdminUserBody, Parsed, UserParams } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions } from '#api/auth/sessions/sessions.ts'
import { clearOneTimeTokens } from '#api/auth/sign-in/one-time-tokens.ts'
import { findPendingCredentials } from '#api/auth/sign-up/pending-credentials.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { withProviders } from '#api/auth/users/accounts.ts'
import { saveContactIdentity } from '#api/auth/users/identities.ts'
import { mergeWithinLimit } from '#api/auth/users/metadata-limit.ts'
import { mergeMetadata, presentUser } from '#api/auth/users/present-user.ts'
import {
  findUserByContact,
  loadParts,
  lockUser,
  type UserChanges,
  updateUser,
} from '#api/auth/users/user-store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

import { getUser, parseBan, parseContacts, parsePassword, verifiedClaims } from './user.ts'

type Body = Parsed<typeof AdminUserBody>
type Contacts = ReturnType<typeof parseContacts>

/** Changes a user at once, because changes by administrators need no confirmation. */
export async function adminUpdateUser(
  services: AuthServices,
  request: AdminRequest,
  body: Body,
  params: Parsed<typeof UserParams>,
): Promise<Answer> {
  const before = await getUser(services, params.user_id)
  const contacts = parseContacts(body)
  await checkTaken(services, contacts, before.id)
  const bannedUntil = parseBan(body.ban_duration, services.store.now())
  const passwordHash = await parsePassword(services, body, { areChecked: true })
  const user = await inTransaction(services.store, async (store) => {
    const locked = await lockUser(store, before.id)
    await saveIdentities(store, locked, { contacts, body })
    const changes: UserChanges = {
      ...(await confirmedSignup(store, locked, body)),
      ...contactChanges(store, locked, { contacts, body }),
      ...(body.role !== undefined && body.role !== '' && { role: body.role }),
      ...(bannedUntil !== undefined && { bannedUntil }),
      ...(passwordHash !== undefined && { passwordHash }),
    }
    const withContacts = await updateUser(store, locked.id, changes)
    const userMetadata = mergeWithinLimit(
      mergeMetadata(withContacts.userMetadata, verifiedClaims(withContacts, body)),
      body.user_metadata,
      'user_metadata',
    )
    const appMetadata = mergeWithinLimit(
      contacts.email || contacts.phone
        ? await withProviders(store, withContacts)
        : withContacts.appMetadata,
      body.app_metadata,
      'app_metadata',
    )
    if (passwordHash !== undefined) {
      await endSessions(store, { userId: locked.id, scope: 'global' })
    }
    // Links sent to the old address must no longer sign in, and a confirmation that an
    // administrator has replaced must not take effect.
    const isConfirmedNow = body.email_confirm === true || body.phone_confirm === true
    if (passwordHash !== undefined || isConfirmedNow || isMoved(locked, contacts)) {
      await clearOneTimeTokens(store, locked.id)
    }
    await record(services, store, {
      request,
      actor: { kind: 'admin', role: request.caller.role },
      action: 'user_modified',
      traits: { user_id: locked.id, ...(locked.email !== null && { user_email: locked.email }) },
    })
    return updateUser(store, locked.id, { appMetadata, userMetadata })
  })
  return json(presentUser(await loadParts(services.store, user)))
}

// An administrator who confirms a sign-up confirms the newest one, with its credentials.
async function confirmedSignup(store: Store, user: UserRow, body: Body): Promise<UserChanges> {
  const isUnconfirmed = user.emailConfirmedAt === null && user.phoneConfirmedAt === null
  const kind = body.email_confirm ? 'email' : body.phone_confirm ? 'phone' : undefined
  if (!isUnconfirmed || kind === undefined) return {}
  const token = await findPendingCredentials(store, user.id, kind)
  if (token === undefined) return {}
  return {
    ...(token.passwordHash !== null && { passwordHash: token.passwordHash }),
    userMetadata: mergeMetadata(user.userMetadata, token.userMetadata ?? {}),
  }
}

function isMoved(user: UserRow, { email, phone }: Contacts): boolean {
  return (email ?? user.email) !== user.email || (phone ?? user.phone) !== user.phone
}

interface ContactChange {
  readonly contacts: Contacts
  readonly body: Body
}

function contactChanges(
  store: Store,
  user: UserRow,
  { contacts, body }: ContactChange,
): UserChanges {
  const now = store.now()
  const { email, phone } = contacts
  return {
    ...(email && { email, emailChange: null, emailChangeAgreed: 0 }),
    ...(phone && { phone, phoneChange: null }),
    ...((email || user.email !== null) && body.email_confirm && { emailConfirmedAt: now }),
    ...((phone || user.phone !== null) && body.phone_confirm && { phoneConfirmedAt: now }),
    ...((email || phone) && { isAnonymous: false }),
  }
}

async function saveIdentities(
  store: Store,
  user: UserRow,
  { contacts, body }: ContactChange,
): Promise<void> {
  const email = contacts.email ?? (body.email_confirm ? user.email : null)
  const phone = contacts.phone ?? (body.phone_confirm ? user.phone : null)
  const base = { sub: user.id }
  if (email) {
    const identityData = { ...base, email, email_verified: body.email_confirm === true }
    await saveContactIdentity(store, { userId: user.id, provider: 'email', identityData })
  }
  if (phone) {
    const identityData = { ...base, phone, phone_verified: body.phone_confirm === true }
    await saveContactIdentity(store, { userId: user.id, provider: 'phone', identityData })
  }
}

async function checkTaken(
  services: AuthServices,
  contacts: Contacts,
  userId: string,
): Promise<void> {
  const { email, phone } = contacts
  const byEmail = email && (await findUserByContact(services.store, { kind: 'email', email }))
  if (byEmail && byEmail.id !== userId) throw authFailure('email_exists')
  const byPhone = phone && (await findUserByContact(services.store, { kind: 'phone', phone }))
  if (byPhone && byPhone.id !== userId) throw authFailure('phone_exists')
}
