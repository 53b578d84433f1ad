import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { parseUuid, requireAssurance } from '#api/auth/factors/own-factor.ts'
import type { IdentityParams, Parsed } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { clearOneTimeTokens } from '#api/auth/sign-in/one-time-tokens.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import type { IdentityRow, UserRow } from '#shared/db/schema/auth.ts'

import { withProviders } from './accounts.ts'
import { deleteIdentity, listIdentities } from './identities.ts'
import { presentIdentity } from './present-user.ts'
import { findUserByContact, lockUser, type UserChanges, updateUser } from './user-store.ts'

/** The identities of the user. */
export async function identities(request: UserRequest): Promise<Answer> {
  return json({ identities: request.caller.parts.identities.map(presentIdentity) })
}

/** Removes an identity from the account, unless it is the last. */
export async function unlinkIdentity(
  services: AuthServices,
  request: UserRequest,
  params: Parsed<typeof IdentityParams>,
): Promise<Answer> {
  if (!services.config.security.isManualLinkingEnabled) throw authFailure('manual_linking_disabled')
  const identityId = parseUuid(params.identity_id, 'identity_id')
  const { caller } = request
  await requireAssurance(services.store, caller, 'unlink identities')
  await inTransaction(services.store, async (store) => {
    // Locked, so that two concurrent requests cannot remove the last two.
    const user = await lockUser(store, caller.user.id)
    await requireLiveSession(store, caller.session)
    const all = await listIdentities(store, user.id)
    if (all.length < 2) throw authFailure('single_identity_not_deletable')
    const gone = all.find((identity) => identity.id === identityId)
    if (gone === undefined) throw authFailure('identity_not_found')
    await deleteIdentity(store, gone.id)
    const rest = all.filter((identity) => identity !== gone)
    const changes = await contactAfter(store, { user, gone, rest })
    await updateUser(store, user.id, { ...changes, appMetadata: await withProviders(store, user) })
    // Links sent to an address that the user no longer owns are void.
    if (changes.email !== undefined || changes.phone !== undefined) {
      await clearOneTimeTokens(store, user.id)
    }
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'identity_unlinked',
      traits: { identity_id: gone.id, provider: gone.provider, provider_id: gone.providerId },
    })
  })
  return json({})
}

async function contactAfter(
  store: Store,
  unlinked: {
    readonly user: UserRow
    readonly gone: IdentityRow
    readonly rest: readonly IdentityRow[]
  },
): Promise<UserChanges> {
  const { user, gone, rest } = unlinked
  if (gone.provider === 'phone') return { phone: null, phoneConfirmedAt: null }
  if (user.email === null || rest.some((identity) => identity.email === user.email)) return {}
  // The account's address counts as confirmed, so only a verified one can replace it.
  const verified = rest.find((identity) => identity.identityData.email_verified === true)
  const email = verified?.email ?? null
  if (email === null) return { email: null, emailConfirmedAt: null }
  const owner = await findUserByContact(store, { kind: 'email', email })
  if (owner !== undefined && owner.id !== user.id) {
    throw authFailure('email_conflict_identity_not_deletable')
  }
  return { email }
}
