import { announce, record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import { type AuthErrorCode, authFailure, WeakPasswordError } from '#api/auth/errors.ts'
import { exchangeIdToken } from '#api/auth/external/exchange-id-token.ts'
import { judgePasswordAttempt } from '#api/auth/hooks/attempt-hooks.ts'
import { checkPasswordRules } from '#api/auth/passwords/password-rules.ts'
import type { GrantQuery, Parsed, TokenBody } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { exchangeRefreshToken } from '#api/auth/sessions/exchange-refresh-token.ts'
import { type OpenedSession, openSession } from '#api/auth/sessions/session-store.ts'
import { tokenResponse } from '#api/auth/sessions/start-session.ts'
import { findSignInCandidate } from '#api/auth/sign-up/pending-credentials.ts'
import { isConfirmed } from '#api/auth/users/accounts.ts'
import { type Contact, nameOf, parseContact } from '#api/auth/users/contact.ts'
import { maySignIn, replacePasswordHash } from '#api/auth/users/user-store.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

import { exchangeAuthCode } from './exchange-auth-code.ts'

type Grant = (
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof TokenBody>,
) => Promise<Answer>

const GRANTS: Readonly<Record<string, Grant>> = {
  password: signInWithPassword,
  refresh_token: exchangeRefreshToken,
  pkce: exchangeAuthCode,
  id_token: exchangeIdToken,
  web3: async () => {
    throw authFailure('web3_provider_disabled')
  },
}

/** Issues tokens for one of the grants. */
export async function token(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof TokenBody>,
  query: Parsed<typeof GrantQuery>,
): Promise<Answer> {
  const grantType = grantTypeOf(body, query)
  const grant = Object.hasOwn(GRANTS, grantType) ? GRANTS[grantType] : undefined
  if (grant === undefined) {
    throw authFailure('invalid_credentials', { message: 'unsupported_grant_type' })
  }
  return grant(services, request, body)
}

/** The grant of a request; the query takes precedence. */
export function grantTypeOf(
  body: Parsed<typeof TokenBody>,
  query: Parsed<typeof GrantQuery>,
): string {
  return query.grant_type || body.grant_type || ''
}

/** Whether an id token is added to the account of the caller instead of signing in. */
export function linksIdentity(
  body: Parsed<typeof TokenBody>,
  query: Parsed<typeof GrantQuery>,
): boolean {
  return body.link_identity === true && grantTypeOf(body, query) === 'id_token'
}

async function signInWithPassword(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof TokenBody>,
): Promise<Answer> {
  const contact = parseContact(body, {
    both: 'Only an email address or phone number should be provided on login.',
    none: 'missing email or phone',
    // No account has such an address or number.
    malformed: () => authFailure('invalid_credentials'),
  })
  checkEnabled(services, contact)
  const password = body.password ?? ''
  // If the password changes during the check, it is checked again.
  let opened: OpenedSession | undefined
  for (let tries = 1; opened === undefined; tries += 1) {
    if (tries > TRIES_MAX) throw authFailure('conflict', { message: 'Please try again.' })
    opened = await openWithPassword(services, request, { contact, password })
  }
  const { event, ...started } = opened
  if (event !== undefined) announce(services, request, event)
  const weakness = await findWeakness(services, password)
  return json({
    ...(await tokenResponse(services, started)),
    ...(weakness && { weak_password: weakness }),
  })
}

const TRIES_MAX = 3

/** Undefined when the account was changed while the password was checked. */
async function openWithPassword(
  services: AuthServices,
  request: AuthRequest,
  proof: { readonly contact: Contact; readonly password: string },
): Promise<OpenedSession | undefined> {
  const { contact, password } = proof
  const candidate = await findSignInCandidate(services.store, {
    contact,
    audience: request.audience,
  })
  // Without a candidate the password is compared with a decoy hash: the answer takes as long.
  const { user, passwordHash: hash } = candidate ?? {}
  const { isRight, needsUpgrade } = await services.guesses.judge(
    { kind: 'password', account: nameOf(contact), network: request.network },
    () => services.passwords.verify(password, hash),
    (verdict) => verdict.isRight,
  )
  // Each right password adds an entry to the audit log, and the others are limited as guesses.
  if (user !== undefined && isRight) {
    await services.limits.takeOfAccount('sign-ins', { id: user.id, network: request.network })
  }
  if (user !== undefined && hash !== undefined && maySignIn(user, services.store.now())) {
    await judgePasswordAttempt(services, request, { user, isValid: isRight })
  }
  const refusal = findRefusal(services, { user, isRight, contact })
  if (user === undefined || refusal !== undefined) {
    const code = refusal ?? 'invalid_credentials'
    await recordFailure(services, request, { user, contact, code })
    throw authFailure(code, { kind: 'invalidRequest' })
  }
  const upgraded = needsUpgrade ? await services.passwords.hash(password) : undefined
  if (upgraded !== undefined && !(await replacePasswordHash(services.store, user, upgraded))) {
    return undefined
  }
  return openSession(services.store, {
    userId: user.id,
    passwordHash: upgraded ?? hash,
    proof: { method: 'password' },
    userAgent: request.userAgent,
    ip: request.ip,
    audit: {
      actor: { kind: 'user', user },
      action: 'login',
      traits: { provider: contact.kind },
    },
  })
}

interface Attempt {
  readonly user: UserRow | undefined
  readonly isRight: boolean
  readonly contact: Contact
}

// The state of an account is revealed only for the right password.
function findRefusal(services: AuthServices, attempt: Attempt): AuthErrorCode | undefined {
  const { user, isRight, contact } = attempt
  if (user === undefined || !isRight) return 'invalid_credentials'
  if (!maySignIn(user, services.store.now())) return 'user_banned'
  if (isConfirmed(user, contact.kind)) return undefined
  return contact.kind === 'email' ? 'email_not_confirmed' : 'phone_not_confirmed'
}

// One row for known and unknown accounts alike, so that neither the log nor the timing
// distinguishes them.
function recordFailure(
  services: AuthServices,
  request: AuthRequest,
  failed: {
    readonly user: UserRow | undefined
    readonly contact: Contact
    readonly code: AuthErrorCode
  },
): Promise<void> {
  const { user, contact, code } = failed
  const name = nameOf(contact)
  return record(services, services.store, {
    request,
    actor: user === undefined ? { kind: 'stranger', name } : { kind: 'user', user },
    action: 'login_failed',
    traits: { provider: contact.kind, reason: code },
  })
}

function checkEnabled(services: AuthServices, contact: Contact): void {
  const { isEmailEnabled, isPhoneEnabled } = services.config.signup
  if (contact.kind === 'email' && !isEmailEnabled) {
    const message = 'Email logins are disabled'
    throw authFailure('email_provider_disabled', { message, kind: 'unprocessable' })
  }
  if (contact.kind === 'phone' && !isPhoneEnabled) {
    const message = 'Phone logins are disabled'
    throw authFailure('phone_provider_disabled', { message, kind: 'unprocessable' })
  }
}

// The rules may have become stricter since the password was set: the user is signed in with a
// warning.
async function findWeakness(
  services: AuthServices,
  password: string,
): Promise<{ message: string; reasons: readonly string[] } | undefined> {
  try {
    await checkPasswordRules(password, { config: services.config.password, log: services.log })
    return undefined
  } catch (error) {
    if (error instanceof WeakPasswordError)
      return { message: error.message, reasons: error.reasons }
    return undefined
  }
}
