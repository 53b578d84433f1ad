import { deleteFactorsAndPasskeys } from '#api/auth/factors/factors.ts'
import type { ExternalProfile } from '#api/auth/ports.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions } from '#api/auth/sessions/sessions.ts'
import { clearOneTimeTokens } from '#api/auth/sign-in/one-time-tokens.ts'
import type { Store } from '#api/auth/store.ts'
import { withProviders } from '#api/auth/users/accounts.ts'
import { deleteOtherIdentities, findOwnersOfEmails } from '#api/auth/users/identities.ts'
import { updateUser } from '#api/auth/users/user-store.ts'
import type { IdentityRow, UserRow } from '#shared/db/schema/auth.ts'

/** Whether the visitor's user is confirmed, or must prove an address first. */
export type Settlement =
  | { readonly kind: 'user'; readonly user: UserRow }
  | {
      readonly kind: 'unverified'
      readonly user: UserRow
      readonly email: string
      readonly identity: IdentityRow
    }

/**
 * Confirms the email address that the provider has verified. Before that, another person may have
 * created the account: its password, phone number, second factors, sessions and other identities
 * are removed.
 */
export async function settleConfirmation(
  services: AuthServices,
  settled: {
    readonly store: Store
    readonly profile: ExternalProfile
    readonly user: UserRow
    readonly identity: IdentityRow
  },
): Promise<Settlement> {
  const { store, profile, user, identity } = settled
  const { isAutoconfirm, allowsUnverifiedSignIns } = services.config.mailer
  // If users may sign in without proof of their address, a number proves nothing about it.
  const isProven = user.phoneConfirmedAt !== null && !allowsUnverifiedSignIns
  if (user.emailConfirmedAt !== null || isProven) return { kind: 'user', user }
  const { email } = user
  // Without an address there is nothing to confirm.
  if (email === null) return { kind: 'user', user }
  const { emails } = profile
  const match =
    emails.find((entry) => entry.email.toLowerCase() === email) ??
    (await findFreeEmail(store, user, profile))
  if (match === undefined || !(match.isVerified || isAutoconfirm)) {
    return { kind: 'unverified', user, email, identity }
  }
  await deleteOtherIdentities(store, user.id, identity.id)
  await endSessions(store, { userId: user.id, scope: 'global' })
  await clearOneTimeTokens(store, user.id)
  await deleteFactorsAndPasskeys(store, user.id)
  if (user.lastSignInAt !== null) await services.onUsersEnded(store.db, [user.id])
  const confirmed = await updateUser(store, user.id, {
    passwordHash: null,
    email: match.email.toLowerCase(),
    emailChange: null,
    phone: null,
    phoneChange: null,
    phoneConfirmedAt: null,
    emailConfirmedAt: store.now(),
    userMetadata: { ...identity.identityData },
    appMetadata: await withProviders(store, user),
  })
  return { kind: 'user', user: confirmed }
}

// A user who never confirmed an address and has another verified one at the provider continues with
// that one.
async function findFreeEmail(
  store: Store,
  user: UserRow,
  profile: ExternalProfile,
): Promise<ExternalProfile['emails'][number] | undefined> {
  const chosen = primaryEmail(profile)
  if (!chosen?.isVerified) return undefined
  const owners = await findOwnersOfEmails(store, [chosen.email.toLowerCase()])
  return owners.every((id) => id === user.id) ? chosen : undefined
}

/** The relevant address of a profile: the primary one, verified ones first. */
export function primaryEmail(
  profile: ExternalProfile,
): ExternalProfile['emails'][number] | undefined {
  const { emails } = profile
  return (
    emails.find((entry) => entry.isPrimary && entry.isVerified) ??
    emails.find((entry) => entry.isVerified) ??
    emails.find((entry) => entry.isPrimary) ??
    emails[0]
  )
}
