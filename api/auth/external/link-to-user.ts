import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest, UserRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { requireAssurance } from '#api/auth/factors/own-factor.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { finishFlow } from '#api/auth/sign-in/flow-states.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { findIdentity } from '#api/auth/users/identities.ts'
import { lockUser, maySignIn, updateUser } from '#api/auth/users/user-store.ts'
import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import { linkIdentity, type Visitor } from './external-account.ts'

interface Linking {
  readonly userId: string
  /** The session of the request, if it has one. */
  readonly session?: SessionRow | undefined
  /** The flow that ends here, if its end has not been recorded yet. */
  readonly flowId?: string
  readonly visitor: Visitor
}

/** Throws unless the caller may add identities to their account. */
export async function requireLinking(
  { config, store }: AuthServices,
  caller: UserRequest['caller'],
): Promise<void> {
  if (!config.security.isManualLinkingEnabled) throw authFailure('manual_linking_disabled')
  await requireAssurance(store, caller, 'link identities')
}

/** Throws `identity_already_exists` when a user has the visitor's identity. */
export async function requireLinkable(store: Store, { userId, visitor }: Linking): Promise<void> {
  const known = await findIdentity(store, visitor.providerId, visitor.profile.subject)
  if (known === undefined) return
  const message = 'Identity is already linked to another user'
  throw authFailure('identity_already_exists', known.userId === userId ? {} : { message })
}

/**
 * Adds the visitor's identity to a signed-in user. Throws `identity_already_exists` when it is
 * taken.
 */
export async function linkToUser(
  services: AuthServices,
  request: AuthRequest,
  linking: Linking,
): Promise<UserRow> {
  const { userId, flowId, visitor } = linking
  const { providerId, profile } = visitor
  await requireLinkable(services.store, linking)
  return inTransaction(services.store, async (store) => {
    const user = await lockUser(store, userId)
    await requireLiveSession(store, linking.session)
    // The sessions of the user, and with them the flow, may have ended while the provider answered.
    if (flowId !== undefined && !(await finishFlow(store, flowId))) {
      throw authFailure('flow_state_not_found')
    }
    if (!maySignIn(user, store.now())) throw authFailure('user_banned')
    const linked = await linkIdentity(store, user, visitor, { keepsMetadata: true })
    if (linked === undefined) throw authFailure('identity_already_exists')
    const verified = profile.emails.find((entry) => entry.isVerified)
    // A user without an email address receives that of the identity and is no longer anonymous.
    const becomes =
      user.email === null && verified !== undefined
        ? { email: verified.email.toLowerCase(), emailConfirmedAt: store.now() }
        : {}
    await record(services, store, {
      request,
      actor: { kind: 'user', user: linked.user },
      action: 'identity_linked',
      traits: { provider: providerId },
    })
    return updateUser(store, user.id, { ...becomes, isAnonymous: false })
  })
}
