import { deleteFactorsAndPasskeys } from '#api/auth/factors/factors.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions } from '#api/auth/sessions/sessions.ts'
import type { Store } from '#api/auth/store.ts'
import { confirmContact, contactClaims, isConfirmed } from '#api/auth/users/accounts.ts'
import type { Contact } from '#api/auth/users/contact.ts'
import { deleteIdentity, listIdentities, saveContactIdentity } from '#api/auth/users/identities.ts'
import { mergeMetadata } from '#api/auth/users/present-user.ts'
import { type UserChanges, updateUser } from '#api/auth/users/user-store.ts'
import type { IdentityRow, Metadata, OneTimeTokenRow, UserRow } from '#shared/db/schema/auth.ts'

interface Confirmation {
  readonly user: UserRow
  readonly kind: Contact['kind']
  readonly token: OneTimeTokenRow
}

/**
 * Confirms the address or number of a one-time token. Before the first confirmation anyone may have
 * used the account, so only the credentials of this token, and those that an administrator set, are
 * kept. The caller holds the lock on the user.
 */
export async function confirmByToken(
  services: AuthServices,
  store: Store,
  confirmation: Confirmation,
): Promise<UserRow> {
  const { user, kind } = confirmation
  if (isConfirmed(user, kind)) return user
  if (isProven(services, confirmation)) return confirmContact(store, user, kind)
  const reset = await resetCredentials(services, store, confirmation)
  return confirmContact(store, reset, kind)
}

// Whether another contact was confirmed before. With unverified sign-ins, a phone number proves
// nothing about the email address, because an unproven session can add a number.
function isProven(services: AuthServices, { user, kind }: Confirmation): boolean {
  if (kind === 'phone') return user.emailConfirmedAt !== null
  return user.phoneConfirmedAt !== null && !services.config.mailer.allowsUnverifiedSignIns
}

async function resetCredentials(
  services: AuthServices,
  store: Store,
  { user, kind, token }: Confirmation,
): Promise<UserRow> {
  const identities = await listIdentities(store, user.id)
  const isSuspectedLost = isUsedUnproven(user, identities)
  const own = ownContact(user, kind)
  const removed = identities.filter(
    ({ id, provider }) =>
      id !== token.identityId &&
      (isSuspectedLost ? provider !== kind : !CONTACT_PROVIDERS.includes(provider)),
  )
  for (const { id } of removed) await deleteIdentity(store, id)
  const keptFlowId = token.flowStateId
  await endSessions(store, { userId: user.id, scope: 'global', keptFlowId })
  await deleteFactorsAndPasskeys(store, user.id)
  // Keys, memberships and webhooks of the unproven user would outlive its sessions.
  if (isSuspectedLost) await services.onUsersEnded(store.db, [user.id])
  await saveClaims(store, user, { own, metadata: token.userMetadata })
  const base = isSuspectedLost ? contactClaims(user.id, own) : user.userMetadata
  return updateUser(store, user.id, {
    passwordHash: token.passwordHash ?? (isSuspectedLost ? null : user.passwordHash),
    userMetadata: mergeMetadata(base, token.userMetadata ?? {}),
    ...(isSuspectedLost && withoutOtherContact(kind)),
  })
}

const CONTACT_PROVIDERS: readonly string[] = ['email', 'phone']

/** Whether the account was used, or linked to a provider, before any contact was confirmed. */
function isUsedUnproven(user: UserRow, identities: readonly IdentityRow[]): boolean {
  const isLinked = identities.some(({ provider }) => !CONTACT_PROVIDERS.includes(provider))
  return user.lastSignInAt !== null || isLinked
}

function ownContact(user: UserRow, kind: Contact['kind']): Contact {
  return kind === 'email' ? { kind, email: user.email ?? '' } : { kind, phone: user.phone ?? '' }
}

function withoutOtherContact(kind: Contact['kind']): UserChanges {
  return {
    emailChange: null,
    phoneChange: null,
    ...(kind === 'email'
      ? { phone: null, phoneConfirmedAt: null }
      : { email: null, emailConfirmedAt: null }),
  }
}

// A sign-up's metadata includes the claims of its contact, which its identity contains too.
async function saveClaims(
  store: Store,
  user: UserRow,
  claims: { readonly own: Contact; readonly metadata: Metadata | null },
): Promise<void> {
  const { own, metadata } = claims
  if (metadata === null || metadata.sub !== user.id) return
  const contact = own.kind === 'email' ? { email: own.email } : { phone: own.phone }
  const identityData = { ...metadata, ...contact }
  await saveContactIdentity(store, { userId: user.id, provider: own.kind, identityData })
}
