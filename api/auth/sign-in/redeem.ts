import { record } from '#api/auth/audit/record.ts'
import type { AuthRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { hasVerifiedFactor } from '#api/auth/factors/factors.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { type StartedSession, startSession } from '#api/auth/sessions/start-session.ts'
import { confirmByToken } from '#api/auth/sign-up/confirm-by-token.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { isConfirmed, withProviders } from '#api/auth/users/accounts.ts'
import { saveContactIdentity } from '#api/auth/users/identities.ts'
import { EMAIL_CHANGE_SIDES, lockUser, maySignIn, updateUser } from '#api/auth/users/user-store.ts'
import type { OneTimeTokenKind, OneTimeTokenRow, UserRow } from '#shared/db/schema/auth.ts'

import { issueAuthCode } from './flow-states.ts'
import { clearOneTimeTokens, consumeOneTimeToken } from './one-time-tokens.ts'

/** The outcome of redeeming a one-time token. */
type Redemption =
  | { readonly kind: 'session'; readonly started: StartedSession }
  /** The client exchanges this for a session. */
  | { readonly kind: 'authCode'; readonly authCode: string }
  /** One side of a change of address has agreed; the other has not yet. */
  | { readonly kind: 'halfway' }

/** The one-time tokens of each `type` on the wire. */
export const KINDS_BY_TYPE: Readonly<Record<string, readonly OneTimeTokenKind[]>> = {
  signup: ['confirmation'],
  invite: ['confirmation'],
  recovery: ['recovery'],
  magiclink: ['recovery'],
  email: ['confirmation', 'recovery'],
  email_change: ['email_change_new', 'email_change_current'],
  sms: ['phone_confirmation'],
  phone_change: ['phone_change'],
}

/**
 * Consumes a one-time token and applies it, in one transaction. Only one of several concurrent
 * requests succeeds; the others receive the answer for an unknown token.
 */
export async function redeem(
  services: AuthServices,
  request: AuthRequest,
  redemption: {
    readonly token: OneTimeTokenRow
    /** Links of PKCE flows end in a code instead of a session. */
    readonly endsInCode: boolean
    readonly passwordHash?: string | undefined
    readonly failureMessage: string
  },
): Promise<Redemption> {
  const { token, passwordHash, failureMessage } = redemption
  return inTransaction<Redemption>(services.store, async (store) => {
    const locked = await lockUser(store, token.userId)
    if (!(await consumeOneTimeToken(store, token.id))) {
      throw authFailure('otp_expired', { message: failureMessage })
    }
    if (!confirmsContactOf(token, locked)) {
      throw authFailure('otp_expired', { message: failureMessage })
    }
    if (!maySignIn(locked, store.now())) throw authFailure('user_banned')
    if (needsOtherSide(services, token, locked)) {
      await updateUser(store, locked.id, { emailChangeAgreed: SIDES[token.kind] ?? 0 })
      return { kind: 'halfway' }
    }
    const applied = await apply(services, request, { store, token, user: locked })
    const user =
      passwordHash === undefined || applied.passwordHash !== null
        ? applied
        : await setFirstPassword(store, applied, passwordHash)
    await clearOneTimeTokens(store, user.id)
    if (redemption.endsInCode && token.flowStateId !== null) {
      const authCode = await issueAuthCode(store, token.flowStateId, { userId: user.id })
      return { kind: 'authCode', authCode }
    }
    const started = await startSession(store, { user, proof: { method: 'otp' }, request })
    return { kind: 'session', started }
  })
}

// A link is a first factor: if the user has a second one, a link adds no further way to sign in.
async function setFirstPassword(
  store: Store,
  user: UserRow,
  passwordHash: string,
): Promise<UserRow> {
  if (!(await hasVerifiedFactor(store, user.id))) {
    return updateUser(store, user.id, { passwordHash })
  }
  const message = 'AAL2 session is required to set a password when MFA is enabled.'
  throw authFailure('insufficient_aal', { message })
}

const SIDES: Partial<Record<OneTimeTokenKind, number>> = EMAIL_CHANGE_SIDES

function needsOtherSide(services: AuthServices, token: OneTimeTokenRow, user: UserRow): boolean {
  const side = SIDES[token.kind]
  return (
    side !== undefined &&
    services.config.mailer.isSecureEmailChangeEnabled &&
    !services.config.mailer.isAutoconfirm &&
    user.email !== null &&
    // A second link to the same side is not the agreement of the other side.
    (user.emailChangeAgreed === 0 || user.emailChangeAgreed === side)
  )
}

// The row may have changed after the token was found: only the locked row is compared.
function confirmsContactOf(token: OneTimeTokenRow, user: UserRow): boolean {
  switch (token.kind) {
    case 'confirmation':
    case 'recovery':
      return token.contact === user.email
    case 'phone_confirmation':
      return token.contact === user.phone
    case 'email_change_new':
      return token.contact === user.emailChange && token.changeTo === user.emailChange
    case 'email_change_current':
      return token.contact === user.email && token.changeTo === user.emailChange
    case 'phone_change':
      return token.contact === user.phoneChange && token.changeTo === user.phoneChange
    case 'reauthentication':
      return token.contact === (user.email ?? user.phone)
  }
}

interface Application {
  readonly store: Store
  readonly token: OneTimeTokenRow
  readonly user: UserRow
}

async function apply(
  services: AuthServices,
  request: AuthRequest,
  application: Application,
): Promise<UserRow> {
  const { store, token, user } = application
  const note = (action: 'login' | 'user_signedup' | 'invite_accepted' | 'user_modified') =>
    record(services, store, { request, actor: { kind: 'user', user }, action })
  switch (token.kind) {
    case 'confirmation':
      await note(user.invitedAt === null ? 'user_signedup' : 'invite_accepted')
      return confirmByToken(services, store, { user, kind: 'email', token })
    case 'recovery':
      await note('login')
      return confirmByToken(services, store, { user, kind: 'email', token })
    case 'phone_confirmation':
      await note(isConfirmed(user, 'phone') ? 'login' : 'user_signedup')
      return confirmByToken(services, store, { user, kind: 'phone', token })
    case 'email_change_new':
    case 'email_change_current':
      await note('user_modified')
      return applyEmailChange(store, user)
    case 'phone_change':
      await note('user_modified')
      return applyPhoneChange(store, user)
    case 'reauthentication':
      // Nonces are redeemed with the change that they allow, not here.
      throw authFailure('otp_expired')
  }
}

/** Sets the address that waited for confirmation. */
export async function applyEmailChange(store: Store, user: UserRow): Promise<UserRow> {
  const email = user.emailChange
  if (email === null) throw authFailure('otp_expired')
  await saveContactIdentity(store, {
    userId: user.id,
    provider: 'email',
    identityData: { sub: user.id, email, email_verified: true },
  })
  return updateUser(store, user.id, {
    email,
    emailChange: null,
    emailChangeAgreed: 0,
    emailConfirmedAt: store.now(),
    isAnonymous: false,
    appMetadata: await withProviders(store, user),
    userMetadata: { ...user.userMetadata, email_verified: true },
  })
}

/** Sets the number that waited for confirmation. */
export async function applyPhoneChange(store: Store, user: UserRow): Promise<UserRow> {
  const phone = user.phoneChange
  if (phone === null) throw authFailure('otp_expired')
  await saveContactIdentity(store, {
    userId: user.id,
    provider: 'phone',
    identityData: { sub: user.id, phone, phone_verified: true },
  })
  return updateUser(store, user.id, {
    phone,
    phoneChange: null,
    phoneConfirmedAt: store.now(),
    isAnonymous: false,
    appMetadata: await withProviders(store, user),
    userMetadata: { ...user.userMetadata, phone_verified: true },
  })
}
