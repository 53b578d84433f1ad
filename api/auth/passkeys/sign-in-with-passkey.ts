import { record } from '#api/auth/audit/record.ts'
import { type Answer, type AuthRequest, json } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import type { Parsed, PasskeySignInBody } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { startSession, tokenResponse } from '#api/auth/sessions/start-session.ts'
import { inTransaction } from '#api/auth/store.ts'
import { isConfirmed } from '#api/auth/users/accounts.ts'
import { lockUser, maySignIn } from '#api/auth/users/user-store.ts'
import { beginAssertion, verifyAssertion } from '#api/auth/webauthn/ceremonies.ts'
import { findPasskeyByCredentialId, useCredential } from '#api/auth/webauthn/credentials.ts'
import type { UserRow } from '#shared/db/schema/auth.ts'

import { insertPasskeyChallenge } from './challenges.ts'
import { presentOptions, requirePasskeys, takeChallenge } from './own-passkey.ts'

/** The options with which a browser finds a passkey of the site; they name no user. */
export async function beginPasskeySignIn(services: AuthServices): Promise<Answer> {
  requirePasskeys(services)
  const ttlSeconds = services.config.webauthn.challengeTtlSeconds
  const { challenge, options } = await beginAssertion(services, { allowed: [], ttlSeconds })
  const kept = { userId: null, challenge }
  return presentOptions(await insertPasskeyChallenge(services.store, kept, ttlSeconds), options)
}

/** Signs the owner of a passkey in. */
export async function verifyPasskeySignIn(
  services: AuthServices,
  request: AuthRequest,
  body: Parsed<typeof PasskeySignInBody>,
): Promise<Answer> {
  requirePasskeys(services)
  const given = { id: body.challenge_id, userId: null }
  const { challenge } = await takeChallenge(services.store, given)
  const response = body.credential
  const passkey = await findPasskeyByCredentialId(services.store, response.id)
  if (passkey === undefined || passkey.userId !== userOfHandle(response.response.userHandle)) {
    throw authFailure('webauthn_verification_failed')
  }
  const use = await verifyAssertion(services, { response, challenge, credential: passkey })
  if (use === undefined) throw authFailure('webauthn_verification_failed')
  const account = { id: passkey.userId, network: request.network }
  await services.limits.takeOfAccount('sign-ins', account)
  const started = await inTransaction(services.store, async (store) => {
    const user = await lockUser(store, passkey.userId)
    requireSignIn(services, user)
    if (!(await useCredential(store, passkey.id, use))) {
      throw authFailure('webauthn_verification_failed')
    }
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'login',
      traits: { passkey_id: passkey.id },
    })
    return startSession(store, { user, proof: { method: 'passkey' }, request })
  })
  return json(await tokenResponse(services, started))
}

// The user handle is the id of the user, as the registration gave it to the authenticator.
function userOfHandle(handle: string | null | undefined): string {
  return Buffer.from(handle ?? '', 'base64url').toString()
}

function requireSignIn(services: AuthServices, user: UserRow): void {
  if (user.email !== null && !isConfirmed(user, 'email')) {
    throw authFailure('email_not_confirmed', { kind: 'accessDenied' })
  }
  if (user.phone !== null && !isConfirmed(user, 'phone')) {
    throw authFailure('phone_not_confirmed', { kind: 'accessDenied' })
  }
  if (!maySignIn(user, services.store.now())) throw authFailure('user_banned')
}
