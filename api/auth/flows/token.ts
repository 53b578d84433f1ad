import { json, type Answer, type AuthRequest } from '../context.ts'
import { authFailure, WeakPasswordError } from '../errors.ts'
import { parseContact, type Contact } from '../identity/contact.ts'
import { checkPasswordRules } from '../identity/password-rules.ts'
import { inTransaction } from '../identity/store.ts'
import { findUserByContact, isBanned, updateUser } from '../identity/users.ts'
import type { GrantQuery, Parsed, TokenBody } from '../schemas.ts'
import type { AuthServices } from '../services.ts'
import { isConfirmed } from '../steps/accounts.ts'
import { exchangeAuthCode } from '../steps/exchange-auth-code.ts'
import { exchangeIdToken } from '../steps/exchange-id-token.ts'
import { exchangeRefreshToken } from '../steps/exchange-refresh-token.ts'
import { record } from '../steps/record.ts'
import { startSession, tokenResponse } from '../steps/start-session.ts'

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
}

/** Issues tokens against one of the grants. */
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

/** The grant of a request; the query wins. */
export function grantTypeOf(
  body: Parsed<typeof TokenBody>,
  query: Parsed<typeof GrantQuery>,
): string {
  return query.grant_type || body.grant_type || ''
}

async function signInWithPassword(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof TokenBody>,
): Promise<Answer> {
  const contact = parseContact(body, {
    both: 'Only an email address or phone number should be provided on login.',
    none: 'missing email or phone',
  })
  checkEnabled(services, contact)
  const password = body.password ?? ''
  const user = await findUserByContact(services.store, contact)
  // Somebody unknown is compared with nobody's password: the answer takes as long.
  const hash = user?.passwordHash ?? undefined
  const { isRight, needsUpgrade } = await services.passwords.verify(password, hash)
  if (user === undefined || !isRight) throw authFailure('invalid_credentials')
  if (isBanned(user, services.store.now())) {
    throw authFailure('user_banned', { kind: 'invalidRequest' })
  }
  const mayBeUnconfirmed =
    contact.kind === 'email' && services.config.mailer.allowsUnverifiedSignIns
  if (!isConfirmed(user, contact.kind) && !mayBeUnconfirmed) {
    throw authFailure(contact.kind === 'email' ? 'email_not_confirmed' : 'phone_not_confirmed')
  }
  const passwordHash = needsUpgrade ? await services.passwords.hash(password) : undefined
  const started = await inTransaction(services.store, async (store) => {
    if (passwordHash !== undefined) await updateUser(store, user.id, { passwordHash })
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'login',
      traits: { provider: contact.kind },
    })
    return startSession(store, { user, proof: { method: 'password' }, request })
  })
  const weakness = await findWeakness(services, password)
  return json({
    ...(await tokenResponse(services, started)),
    ...(weakness && { weak_password: weakness }),
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

// Rules may have become stricter since the password was chosen: the user is let in and told.
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
