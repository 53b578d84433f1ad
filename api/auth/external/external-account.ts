import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import { sendTokenMail } from '#api/auth/delivery/send-mail.ts'
import { authFailure } from '#api/auth/errors.ts'
import { announceNewUser, approveNewUser, type Candidate } from '#api/auth/hooks/new-user-hooks.ts'
import type { ExternalProfile } from '#api/auth/ports.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { consumeOneTimeToken } from '#api/auth/sign-in/one-time-tokens.ts'
import {
  primaryEmail,
  type Settlement,
  settleConfirmation,
} from '#api/auth/sign-up/settle-confirmation.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { withProviders } from '#api/auth/users/accounts.ts'
import {
  findIdentity,
  findOwnersOfEmails,
  insertIdentity,
  updateIdentityData,
} from '#api/auth/users/identities.ts'
import { mergeMetadata } from '#api/auth/users/present-user.ts'
import { insertUser, lockUser, maySignIn, updateUser } from '#api/auth/users/user-store.ts'
import type { IdentityRow, OneTimeTokenRow, UserRow } from '#shared/db/schema/auth.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

/** A visitor returning from a provider. */
export interface Visitor {
  readonly providerId: string
  readonly profile: ExternalProfile
  /** The invitation of the visitor, who must own its address. */
  readonly invitation?: OneTimeTokenRow | undefined
  /** The id of a new user that a hook has approved. */
  readonly newUserId?: string | undefined
}

type Decision = Settlement | { readonly kind: 'refused'; readonly error: ServiceError }

/**
 * The user of a visitor:
 *
 * 1. the identity is known: its user;
 * 2. exactly one user owns a verified address of the visitor: that user, with one more identity;
 * 3. several users do: the visitor is ambiguous and refused;
 * 4. no user does: a new user.
 *
 * A user who never confirmed an address loses password, number, second factors and other identities
 * at the first external sign-in: an attacker who created the account in advance must not keep
 * access to it.
 */
export async function decideAccount(
  services: AuthServices,
  request: AuthRequest,
  visitor: Visitor,
): Promise<{ user: UserRow }> {
  const decision = await decide(services, request, visitor)
  if (decision.kind === 'user') return { user: decision.user }
  if (decision.kind === 'refused') throw decision.error
  // The user is kept, although the proof of the address is still missing.
  const { user, email, identity } = decision
  const credentials = { identityId: identity.id, userMetadata: identity.identityData }
  await sendTokenMail(services, request, { user, name: 'confirmation', to: email, credentials })
  if (services.config.mailer.allowsUnverifiedSignIns) return { user }
  throw authFailure('provider_email_needs_verification', {
    message: `Unverified email with ${visitor.providerId}. A confirmation email has been sent to your ${visitor.providerId} email`,
  })
}

// Thrown when a concurrent request of the same visitor won: the transaction is undone and repeated.
class LostRace extends Error {}
// Thrown when a new user needs the approval of a hook, which is asked outside the transaction.
class ApprovalNeeded extends Error {
  readonly candidate: Candidate

  constructor(candidate: Candidate) {
    super('a hook decides about this user')
    this.candidate = candidate
  }
}
const TRIES_MAX = 3

// Pages may send the same callback twice at once: the later request finds the user that the first
// one created.
async function decide(
  services: AuthServices,
  request: AuthRequest,
  visitor: Visitor,
): Promise<Decision> {
  let arriving = visitor
  for (let tries = 1; ; tries += 1) {
    try {
      return await inTransaction(services.store, (store) =>
        decideOnce(services, request, { store, visitor: arriving }),
      )
    } catch (error) {
      if (error instanceof ApprovalNeeded) {
        const newUserId = await approveNewUser(services, request, error.candidate)
        arriving = { ...visitor, newUserId }
        continue
      }
      if (!(error instanceof LostRace)) throw error
      if (tries === TRIES_MAX) throw authFailure('conflict', { message: 'Please try again.' })
    }
  }
}

async function decideOnce(
  services: AuthServices,
  request: AuthRequest,
  arrival: Arrival,
): Promise<Decision> {
  const found = await findOrCreate(services, request, arrival)
  if (!('user' in found)) return { kind: 'refused', error: found.error }
  // Thrown, so that the identity and the sign-in of a banned user are not stored.
  if (!maySignIn(found.user, arrival.store.now())) throw authFailure('user_banned')
  const { store, visitor } = arrival
  return settleConfirmation(services, { ...found, store, profile: visitor.profile })
}

interface Arrival {
  readonly store: Store
  readonly visitor: Visitor
}

type Found = { user: UserRow; identity: IdentityRow } | { error: ServiceError }

async function findOrCreate(
  services: AuthServices,
  request: AuthRequest,
  arrival: Arrival,
): Promise<Found> {
  const { store, visitor } = arrival
  const { profile, providerId } = visitor
  const known = await findIdentity(store, providerId, profile.subject)
  if (known !== undefined) {
    const identityData = claimsOf(profile)
    // Locks the user first, as linking and unlinking do; otherwise two transactions could deadlock.
    const user = await lockUser(store, known.userId)
    await updateIdentityData(store, known.id, identityData)
    const userMetadata = mergeMetadata(user.userMetadata, identityData)
    const updated = await updateUser(store, user.id, { userMetadata })
    await recordLogin(services, request, { store, user: updated, providerId })
    return { user: updated, identity: { ...known, identityData } }
  }
  if (visitor.invitation !== undefined) {
    return acceptInvite(services, request, { ...arrival, invitation: visitor.invitation })
  }
  // Even where new addresses need no confirmation, an unverified one must not open another user's
  // account.
  const trusted = profile.emails.filter((entry) => entry.isVerified)
  const emails = trusted.map((entry) => entry.email.toLowerCase())
  const owners = await findOwnersOfEmails(store, emails)
  if (owners.length > 1) {
    const message =
      'Multiple accounts with the same email address in the same linking domain detected: default'
    return { error: failure.internal(message, { code: 'unexpected_failure' }) }
  }
  const [owner] = owners
  if (owner === undefined) return createUser(services, request, arrival)
  const user = await lockUser(store, owner)
  // The user may have changed the address before the lock was taken.
  if (!(await findOwnersOfEmails(store, emails)).includes(owner)) throw new LostRace()
  const linked = await linkIdentity(store, user, visitor)
  if (linked === undefined) throw new LostRace()
  await recordLogin(services, request, { store, user: linked.user, providerId })
  return linked
}

async function acceptInvite(
  services: AuthServices,
  request: AuthRequest,
  arrival: Arrival & { readonly invitation: OneTimeTokenRow },
): Promise<Found> {
  const { store, visitor, invitation } = arrival
  const user = await lockUser(store, invitation.userId)
  const owns = visitor.profile.emails.some(({ email }) => email.toLowerCase() === user.email)
  if (!owns) {
    const message = 'Invited email does not match emails from external provider'
    return { error: authFailure('invite_not_found', { message, kind: 'invalidRequest' }) }
  }
  const isOfUser = invitation.contact === user.email
  if (!isOfUser || !(await consumeOneTimeToken(store, invitation.id))) {
    return { error: authFailure('invite_not_found') }
  }
  const linked = await linkIdentity(store, user, visitor)
  if (linked === undefined) throw new LostRace()
  await record(services, store, {
    request,
    actor: { kind: 'user', user: linked.user },
    action: 'invite_accepted',
    traits: { provider: visitor.providerId },
  })
  return linked
}

async function createUser(
  services: AuthServices,
  request: AuthRequest,
  arrival: Arrival,
): Promise<Found> {
  const { store, visitor } = arrival
  const { profile, providerId } = visitor
  if (services.config.signup.isDisabled) return { error: authFailure('signup_disabled') }
  const chosen = primaryEmail(profile)
  const isOptional = isEmailOptional(services, providerId)
  if (chosen === undefined && !isOptional) {
    const message = 'Error getting user email from external provider'
    return { error: failure.internal(message, { code: 'unexpected_failure' }) }
  }
  const email = chosen?.email.toLowerCase()
  // An unverified address that belongs to another user stays with that user.
  const isTaken = email !== undefined && (await findOwnersOfEmails(store, [email])).length > 0
  const { allowsUnverifiedSignIns } = services.config.mailer
  // The owner of a verified address was not found before, so a concurrent request has created it.
  if (isTaken && chosen?.isVerified) throw new LostRace()
  if (isTaken && !allowsUnverifiedSignIns) {
    const message = `Unverified email with ${providerId}. Verify the email with ${providerId} in order to sign in`
    return { error: authFailure('provider_email_needs_verification', { message }) }
  }
  const { newUserId: id } = visitor
  const fields = { email: isTaken ? undefined : email, userMetadata: claimsOf(profile) }
  if (id === undefined && services.hooks.isEnabled('beforeUserCreated')) {
    throw new ApprovalNeeded({ ...fields, provider: providerId })
  }
  const user = await insertUser(store, {
    ...(id !== undefined && { id }),
    ...fields,
    aud: request.audience,
    role: services.config.jwt.defaultGroupName,
    appMetadata: { provider: providerId, providers: [providerId] },
  })
  if (user === undefined) throw new LostRace()
  const identity = await insertIdentity(store, {
    userId: user.id,
    provider: providerId,
    providerId: profile.subject,
    identityData: claimsOf(profile),
  })
  if (identity === undefined) throw new LostRace()
  await announceNewUser(services, store, request, user)
  await record(services, store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_signedup',
    traits: { provider: providerId },
  })
  return { user, identity }
}

/** Adds the visitor's identity to the user; undefined when a user already has it. */
export async function linkIdentity(
  store: Store,
  user: UserRow,
  visitor: Visitor,
  options: { readonly keepsMetadata?: boolean } = {},
): Promise<{ user: UserRow; identity: IdentityRow } | undefined> {
  const identityData = claimsOf(visitor.profile)
  const identity = await insertIdentity(store, {
    userId: user.id,
    provider: visitor.providerId,
    providerId: visitor.profile.subject,
    identityData,
  })
  if (identity === undefined) return undefined
  const linked = await updateUser(store, user.id, {
    ...(!options.keepsMetadata && {
      userMetadata: mergeMetadata(user.userMetadata, identityData),
    }),
    appMetadata: await withProviders(store, user),
  })
  return { user: linked, identity }
}

async function recordLogin(
  services: AuthServices,
  request: AuthRequest,
  login: { readonly store: Store; readonly user: UserRow; readonly providerId: string },
): Promise<void> {
  // An id token can be presented at any rate.
  const account = { id: login.user.id, network: request.network }
  await services.limits.takeOfAccount('sign-ins', account)
  await record(services, login.store, {
    request,
    actor: { kind: 'user', user: login.user },
    action: 'login',
    traits: { provider: login.providerId },
  })
}

function isEmailOptional(services: AuthServices, providerId: string): boolean {
  const { providers } = services.config.external
  return Object.hasOwn(providers, providerId)
    ? providers[providerId as keyof typeof providers].isEmailOptional
    : false
}

function claimsOf(profile: ExternalProfile): Record<string, unknown> {
  return { ...profile.metadata, sub: profile.subject, provider_id: profile.subject }
}
