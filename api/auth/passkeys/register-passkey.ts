import { record } from '#api/auth/audit/record.ts'
import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { authFailure } from '#api/auth/errors.ts'
import { requireNamedUser } from '#api/auth/factors/own-factor.ts'
import type { Parsed, PasskeyRegistrationBody } from '#api/auth/schemas.ts'
import type { AuthServices } from '#api/auth/services.ts'
import { requireLiveSession } from '#api/auth/sessions/sessions.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { lockUser } from '#api/auth/users/user-store.ts'
import { beginRegistration, verifyRegistration } from '#api/auth/webauthn/ceremonies.ts'
import { insertCredential, listPasskeys } from '#api/auth/webauthn/credentials.ts'
import type { WebAuthnCredentialRow } from '#shared/db/schema/auth.ts'

import { insertPasskeyChallenge } from './challenges.ts'
import {
  presentOptions,
  presentPasskey,
  requirePasskeyAssurance,
  requirePasskeys,
  takeChallenge,
} from './own-passkey.ts'
import { passkeyNameOf } from './passkey-names.ts'

/** The options with which a browser creates a passkey. */
export async function beginPasskeyRegistration(
  services: AuthServices,
  request: UserRequest,
): Promise<Answer> {
  await requireWelcome(services, request)
  const { user } = request.caller
  const existing = await requireRoom(services, services.store, user.id)
  const ttlSeconds = services.config.webauthn.challengeTtlSeconds
  const registration = { user, existing, isDiscoverable: true, ttlSeconds }
  const { challenge, options } = await beginRegistration(services, registration)
  const kept = { userId: user.id, challenge }
  const stored = await inTransaction(services.store, async (store) => {
    await lockUser(store, user.id)
    await requireLiveSession(store, request.caller.session)
    return insertPasskeyChallenge(store, kept, ttlSeconds)
  })
  return presentOptions(stored, options)
}

/** Stores the passkey that a browser has created. */
export async function verifyPasskeyRegistration(
  services: AuthServices,
  request: UserRequest,
  body: Parsed<typeof PasskeyRegistrationBody>,
): Promise<Answer> {
  await requireWelcome(services, request)
  const { user } = request.caller
  const given = { id: body.challenge_id, userId: user.id }
  const { challenge } = await takeChallenge(services.store, given)
  const made = await verifyRegistration(services, { response: body.credential, challenge })
  if (made === undefined) throw authFailure('webauthn_verification_failed')
  const passkey = await inTransaction(services.store, async (store) => {
    await lockUser(store, user.id)
    await requireLiveSession(store, request.caller.session)
    await requireRoom(services, store, user.id)
    const fields = { userId: user.id, factorId: null, friendlyName: passkeyNameOf(made.aaguid) }
    const stored = await insertCredential(store, { ...made, ...fields })
    if (stored === undefined) throw authFailure('webauthn_credential_exists')
    await record(services, store, {
      request,
      actor: { kind: 'user', user },
      action: 'passkey_created',
      traits: { passkey_id: stored.id },
    })
    return stored
  })
  return json(presentPasskey(passkey))
}

async function requireWelcome(services: AuthServices, request: UserRequest): Promise<void> {
  requirePasskeys(services)
  requireNamedUser(request.caller.user)
  await requirePasskeyAssurance(services, request)
}

async function requireRoom(
  services: AuthServices,
  store: Store,
  userId: string,
): Promise<WebAuthnCredentialRow[]> {
  const existing = await listPasskeys(store, userId)
  if (existing.length >= services.config.passkey.passkeysMax) throw authFailure('too_many_passkeys')
  return existing
}
