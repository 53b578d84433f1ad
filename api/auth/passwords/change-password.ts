import type { UserRequest } from '#api/auth/context.ts'
import { gatewayCheck } from '#api/auth/delivery/send-sms.ts'
import { authFailure } from '#api/auth/errors.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { consumeOneTimeToken, findByCode } from '#api/auth/sign-in/one-time-tokens.ts'
import type { Store } from '#api/auth/store.ts'
import type { OneTimeTokenRow, UserRow } from '#shared/db/schema/auth.ts'

/**
 * Checks a new password of a signed-in user, except for the rules, and hashes it. The nonce is
 * consumed together with the change, so it remains valid if the rules reject the password.
 */
export async function preparePassword(
  services: AuthServices,
  request: UserRequest,
  change: { readonly password: string; readonly nonce: string | undefined },
): Promise<{ passwordHash: string; nonce: OneTimeTokenRow | undefined }> {
  const { config, passwords } = services
  const { user } = request.caller
  const needsNonce =
    config.security.requiresReauthentication && !hasJustProvenContact(services, request)
  if (needsNonce && !change.nonce) throw authFailure('reauthentication_needed', { param: 'nonce' })
  const nonce = needsNonce ? await findNonce(services, request, change.nonce ?? '') : undefined
  if (user.passwordHash !== null) {
    const { isRight } = await passwords.verify(change.password, user.passwordHash)
    if (isRight) throw authFailure('same_password', { param: 'password' })
  }
  const passwordHash = await passwords.hash(change.password)
  return { passwordHash, nonce }
}

/** Consumes a nonce. Throws unless it is valid and was sent to the contact of the locked user. */
export async function consumeNonce(
  store: Store,
  user: UserRow,
  nonce: OneTimeTokenRow,
): Promise<void> {
  const isOfContact = nonce.contact === (user.email ?? user.phone)
  if (!isOfContact || !(await consumeOneTimeToken(store, nonce.id))) throw invalidNonce()
}

const FRESH_SESSION_MS = 24 * 3600 * 1000
const CONTACT_PROOFS = ['otp', 'magiclink', 'recovery', 'invite', 'email/signup', 'email_change']

// A session that began with a link or code a short while ago has the same proof as a nonce:
// requiring one again would only break password recovery.
function hasJustProvenContact(services: AuthServices, request: UserRequest): boolean {
  const { session } = request.caller
  if (session === undefined) return false
  const isFresh = services.clock.now() - session.createdAt.getTime() < FRESH_SESSION_MS
  return isFresh && session.amr.some((entry) => CONTACT_PROOFS.includes(entry.method))
}

async function findNonce(
  services: AuthServices,
  request: UserRequest,
  nonce: string,
): Promise<OneTimeTokenRow> {
  const { user } = request.caller
  const { jwt, rateLimits } = services.config
  const contact = user.email ?? user.phone ?? ''
  const found = await services.guesses.judge(
    { kind: 'code', account: contact, network: request.network },
    () =>
      findByCode(services.store, {
        userId: user.id,
        kinds: ['reauthentication'],
        contact,
        code: nonce,
        pepper: jwt.secret,
        attemptsMax: rateLimits.otpAttemptsMax,
        ...(user.email === null && {
          isRight: gatewayCheck(services, { kind: 'phone', phone: contact }, nonce),
        }),
      }),
    (token) => token !== undefined,
  )
  if (found === undefined) throw invalidNonce()
  return found
}

function invalidNonce(): Error {
  return authFailure('reauthentication_not_valid', { param: 'nonce' })
}
