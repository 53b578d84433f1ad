import { randomBytes } from 'node:crypto'

import type { IdentityRow, UserRow } from '#shared/db/schema/auth.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import type { AuthRequest } from '../context.ts'
import { authFailure } from '../errors.ts'
import { deleteFactors } from '../identity/factors.ts'
import {
  deleteOtherIdentities,
  findIdentity,
  findOwnersOfEmails,
  insertIdentity,
  updateIdentityData,
} from '../identity/identities.ts'
import { clearOneTimeTokens } from '../identity/one-time-tokens.ts'
import { mergeMetadata } from '../identity/present-user.ts'
import { endSessions } from '../identity/sessions.ts'
import { inTransaction, type Store } from '../identity/store.ts'
import { insertUser, lockUser, maySignIn, updateUser } from '../identity/users.ts'
import type { ExternalProfile } from '../ports.ts'
import type { AuthServices } from '../services.ts'
import { withProviders } from './accounts.ts'
import { record } from './record.ts'
import { sendTokenMail } from './send-mail.ts'

/** Somebody who comes from a provider. */
export interface Visitor {
  readonly providerId: string
  readonly profile: ExternalProfile
  /** The address that an invitation was sent to, which the visitor must own. */
  readonly invitedUser?: UserRow | undefined
}

type Decision =
  | { readonly kind: 'user'; readonly user: UserRow }
  | { readonly kind: 'unverified'; readonly user: UserRow; readonly email: string }
  | { readonly kind: 'refused'; readonly error: ServiceError }

/**
 * Which user a visitor is:
 *
 * 1. the identity is known: its user;
 * 2. exactly one user owns a verified address of the visitor: that user, with one identity more;
 * 3. several do: nobody can tell, so it is refused;
 * 4. none does: a new user.
 *
 * A user who never confirmed an address loses password, number, second factors and other identities
 * at the first external sign-in: whoever made the account in advance must not stay in it.
 */
export async function decideAccount(
  services: AuthServices,
  request: AuthRequest,
  visitor: Visitor,
): Promise<{ user: UserRow }> {
  const decision = await inTransaction(services.store, async (store): Promise<Decision> => {
    const found = await findOrCreate(services, request, { store, visitor })
    if (!('user' in found)) return { kind: 'refused', error: found.error }
    if (!maySignIn(found.user, store.now())) {
      return { kind: 'refused', error: authFailure('user_banned') }
    }
    return settleConfirmation(services, { store, visitor, ...found })
  })
  if (decision.kind === 'user') return { user: decision.user }
  if (decision.kind === 'refused') throw decision.error
  // The user stays; what is missing is the proof of the address.
  const { user, email } = decision
  await sendTokenMail(services, request, { user, name: 'confirmation', to: email })
  throw authFailure('provider_email_needs_verification', {
    message: `Unverified email with ${visitor.providerId}. A confirmation email has been sent to your ${visitor.providerId} email`,
  })
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
    await updateIdentityData(store, known.id, identityData)
    const user = await lockUser(store, known.userId)
    const userMetadata = mergeMetadata(user.userMetadata, identityData)
    const updated = await updateUser(store, user.id, { userMetadata })
    await recordLogin(services, request, { store, user: updated, providerId })
    return { user: updated, identity: { ...known, identityData } }
  }
  if (visitor.invitedUser !== undefined) return acceptInvite(services, request, arrival)
  const isAutoconfirm = services.config.mailer.isAutoconfirm
  const trusted = profile.emails.filter((entry) => entry.isVerified || isAutoconfirm)
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
  const linked = await linkIdentity(store, user, visitor)
  if (linked === undefined) return { error: authFailure('identity_already_exists') }
  await recordLogin(services, request, { store, user: linked.user, providerId })
  return linked
}

async function acceptInvite(
  services: AuthServices,
  request: AuthRequest,
  arrival: Arrival,
): Promise<Found> {
  const { store, visitor } = arrival
  const invited = visitor.invitedUser as UserRow
  const owns = visitor.profile.emails.some(({ email }) => email.toLowerCase() === invited.email)
  if (!owns) {
    const message = 'Invited email does not match emails from external provider'
    return { error: authFailure('invite_not_found', { message, kind: 'invalidRequest' }) }
  }
  const user = await lockUser(store, invited.id)
  const linked = await linkIdentity(store, user, visitor)
  if (linked === undefined) return { error: authFailure('identity_already_exists') }
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
  // An unverified address that somebody has already stays with whom it is.
  const isTaken = email !== undefined && (await findOwnersOfEmails(store, [email])).length > 0
  const user = await insertUser(store, {
    aud: request.audience,
    role: services.config.jwt.defaultGroupName,
    email: isTaken ? undefined : email,
    userMetadata: claimsOf(profile),
    appMetadata: { provider: providerId, providers: [providerId] },
  })
  if (user === undefined) return { error: authFailure('email_exists') }
  const identity = await insertIdentity(store, {
    userId: user.id,
    provider: providerId,
    providerId: profile.subject,
    identityData: claimsOf(profile),
  })
  // Somebody was faster with the same identity: thrown, so that the new user goes again.
  if (identity === undefined) throw authFailure('conflict', { message: 'Please try again.' })
  await record(services, store, {
    request,
    actor: { kind: 'user', user },
    action: 'user_signedup',
    traits: { provider: providerId },
  })
  return { user, identity }
}

/** Gives the user the visitor's identity; undefined when somebody has it. */
export async function linkIdentity(
  store: Store,
  user: UserRow,
  visitor: Visitor,
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
    userMetadata: mergeMetadata(user.userMetadata, identityData),
    appMetadata: await withProviders(store, user),
  })
  return { user: linked, identity }
}

async function settleConfirmation(
  services: AuthServices,
  settled: Arrival & { readonly user: UserRow; readonly identity: IdentityRow },
): Promise<Decision> {
  const { store, visitor, user, identity } = settled
  const { isAutoconfirm, allowsUnverifiedSignIns } = services.config.mailer
  // Where people get in without proof of their address, a number of theirs proves nothing about it.
  const isProven = user.phoneConfirmedAt !== null && !allowsUnverifiedSignIns
  if (user.emailConfirmedAt !== null || isProven) return { kind: 'user', user }
  const { email } = user
  // Without an address there is nothing to confirm.
  if (email === null) return { kind: 'user', user }
  const { emails } = visitor.profile
  const match =
    emails.find((entry) => entry.email.toLowerCase() === email) ??
    (await findFreeEmail(store, user, visitor.profile))
  if (match === undefined || !(match.isVerified || isAutoconfirm)) {
    return { kind: 'unverified', user, email }
  }
  await deleteOtherIdentities(store, user.id, identity.id)
  await endSessions(store, { userId: user.id, scope: 'global' })
  await clearOneTimeTokens(store, user.id)
  await deleteFactors(store, user.id)
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

// Whoever never confirmed an address and has another one at the provider by now goes on with that.
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

function recordLogin(
  services: AuthServices,
  request: AuthRequest,
  login: { readonly store: Store; readonly user: UserRow; readonly providerId: string },
): Promise<void> {
  return record(services, login.store, {
    request,
    actor: { kind: 'user', user: login.user },
    action: 'login',
    traits: { provider: login.providerId },
  })
}

function primaryEmail(profile: ExternalProfile): ExternalProfile['emails'][number] | undefined {
  const { emails } = profile
  return (
    emails.find((entry) => entry.isPrimary && entry.isVerified) ??
    emails.find((entry) => entry.isVerified) ??
    emails.find((entry) => entry.isPrimary) ??
    emails[0]
  )
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

/** A verifier for the provider's own PKCE. */
export function randomCodeVerifier(): string {
  return randomBytes(32).toString('base64url')
}
