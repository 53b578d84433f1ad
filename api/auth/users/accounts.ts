import type { AuthRequest } from '#api/auth/context.ts'
import { deleteFactorsAndPasskeys } from '#api/auth/factors/factors.ts'
import { announceNewUser } from '#api/auth/hooks/new-user-hooks.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { endSessions } from '#api/auth/sessions/sessions.ts'
import { clearOneTimeTokens } from '#api/auth/sign-in/one-time-tokens.ts'
import type { Store } from '#api/auth/store.ts'
import type { IdentityRow, Metadata, UserRow } from '#shared/db/schema/auth.ts'

import type { Contact } from './contact.ts'
import { listIdentities, saveContactIdentity } from './identities.ts'
import { mergeWithinLimit } from './metadata-limit.ts'
import { mergeMetadata } from './present-user.ts'
import { insertUser, lockUser, updateUser } from './user-store.ts'

/** A user who signs up by address or number. */
export interface NewAccount {
  /** The id that a hook has approved; a new one if absent. */
  readonly id?: string | undefined
  readonly contact: Contact
  readonly passwordHash?: string | undefined
  readonly data?: Metadata | undefined
  /** Users that an administrator creates keep exactly the metadata that was sent. */
  readonly keepsIdentityClaims: boolean
  readonly invitedAt?: Date
  /** True for users who sign up themselves: they expire unless they confirm the contact. */
  readonly isSignup?: boolean
}

/** Adds a user with the identity of the address or number; undefined when that is taken. */
export async function createAccount(
  services: AuthServices,
  store: Store,
  options: { readonly account: NewAccount; readonly request: AuthRequest },
): Promise<UserRow | undefined> {
  const { account, request } = options
  const { contact } = account
  const user = await insertUser(store, {
    ...(account.id !== undefined && { id: account.id }),
    aud: request.audience,
    role: services.config.jwt.defaultGroupName,
    ...(contact.kind === 'email' ? { email: contact.email } : { phone: contact.phone }),
    passwordHash: account.passwordHash,
    appMetadata: { provider: contact.kind, providers: [contact.kind] },
    ...(account.invitedAt && { invitedAt: account.invitedAt }),
    ...(account.isSignup && { signedUpAt: store.now() }),
  })
  if (user === undefined) return undefined
  await announceNewUser(services, store, request, user)
  const claims = contactClaims(user.id, contact, account.keepsIdentityClaims ? account.data : {})
  await saveContactIdentity(store, {
    userId: user.id,
    provider: contact.kind,
    identityData: claims,
  })
  const userMetadata = account.keepsIdentityClaims
    ? signupMetadata(claims, contact.kind)
    : mergeMetadata({}, account.data)
  return updateUser(store, user.id, { userMetadata })
}

/**
 * The account of an invited address; undefined when a concurrent sign-up took or confirmed it. An
 * earlier unconfirmed sign-up may not be from the invited person, so its password, sessions, codes
 * and changes of contact are removed.
 */
export async function inviteAccount(
  services: AuthServices,
  store: Store,
  invitation: {
    readonly email: string
    readonly known: UserRow | undefined
    /** The id if the user is created. */
    readonly id?: string | undefined
    readonly data?: Metadata | undefined
    readonly request: AuthRequest
  },
): Promise<UserRow | undefined> {
  const { email, known, id, data, request } = invitation
  const invitedAt = store.now()
  if (known === undefined) {
    const contact = { kind: 'email', email } as const
    const account = { id, contact, data, keepsIdentityClaims: false, invitedAt }
    return createAccount(services, store, { account, request })
  }
  // The lock also prevents a deadlock of two concurrent invitations.
  const locked = await lockUser(store, known.id)
  // The owner of the address has confirmed it in between.
  if (isConfirmed(locked, 'email')) return undefined
  if (isConfirmed(locked, 'phone')) {
    const userMetadata = mergeWithinLimit(locked.userMetadata, data, 'data')
    return updateUser(store, known.id, { invitedAt, userMetadata })
  }
  await endSessions(store, { userId: known.id, scope: 'global' })
  await clearOneTimeTokens(store, known.id)
  await deleteFactorsAndPasskeys(store, known.id)
  // Credentials set in sessions of an unconfirmed account, not by an administrator.
  const isSuspectedLost = locked.lastSignInAt !== null
  if (isSuspectedLost) await services.onUsersEnded(store.db, [known.id])
  return updateUser(store, known.id, {
    invitedAt,
    passwordHash: null,
    emailChange: null,
    phoneChange: null,
    signedUpAt: null,
    lastSignInAt: null,
    userMetadata: mergeWithinLimit(isSuspectedLost ? {} : locked.userMetadata, data, 'data'),
  })
}

/**
 * The metadata of a user who signs up: the claims, without the number, which belongs to the
 * identity.
 */
export function signupMetadata(claims: Metadata, kind: Contact['kind']): Metadata {
  return mergeMetadata({}, kind === 'phone' ? { ...claims, phone: null } : claims)
}

/** The claims of an identity about the user's own email address or phone number. */
export function contactClaims(
  userId: string,
  contact: Contact,
  data: Metadata | undefined = {},
): Metadata {
  return {
    ...data,
    sub: userId,
    ...(contact.kind === 'email' ? { email: contact.email } : { phone: contact.phone }),
    email_verified: false,
    phone_verified: false,
  }
}

/** Records that the user has proven to own the address or number. */
export async function confirmContact(
  store: Store,
  user: UserRow,
  kind: Contact['kind'],
): Promise<UserRow> {
  const now = store.now()
  const isEmail = kind === 'email'
  const verified = isEmail ? { email_verified: true } : { phone_verified: true }
  const contact = isEmail ? { email: user.email ?? '' } : { phone: user.phone ?? '' }
  const identities = await listIdentities(store, user.id)
  // The address of a provider's user does not get a separate identity.
  if (identities.length === 0 || identities.some(({ provider }) => provider === kind)) {
    await saveContactIdentity(store, {
      userId: user.id,
      provider: kind,
      identityData: { sub: user.id, ...contact, ...verified },
    })
  }
  return updateUser(store, user.id, {
    ...(isEmail ? { emailConfirmedAt: now } : { phoneConfirmedAt: now }),
    userMetadata: { ...user.userMetadata, ...verified },
    appMetadata: await withProviders(store, user),
  })
}

/** The user's app_metadata with the providers of the current identities. */
export async function withProviders(store: Store, user: UserRow): Promise<Metadata> {
  const identities = await listIdentities(store, user.id)
  return withProvidersOf(user.appMetadata, identities)
}

// The provider with which the account began stays first as long as it is linked.
function withProvidersOf(appMetadata: Metadata, identities: readonly IdentityRow[]): Metadata {
  const names = [...new Set(identities.map((identity) => identity.provider))]
  if (names.length === 0) return appMetadata
  const provider = names.find((name) => name === appMetadata.provider) ?? names[0]
  const providers = [provider, ...names.filter((name) => name !== provider)]
  return { ...appMetadata, provider, providers }
}

/** Whether the user may sign in with this address or number without further proof. */
export function isConfirmed(user: UserRow, kind: Contact['kind']): boolean {
  return (kind === 'email' ? user.emailConfirmedAt : user.phoneConfirmedAt) !== null
}
