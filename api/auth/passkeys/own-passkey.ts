import { type Answer, json, type UserRequest } from '#api/auth/context.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import { parseUuid, requireAssurance } from '#api/auth/factors/own-factor.ts'
import type { AuthServices } from '#api/auth/services.ts'
import type { Store } from '#api/auth/store.ts'
import type { WebAuthnChallengeRow, WebAuthnCredentialRow } from '#shared/db/schema/auth.ts'

import { takePasskeyChallenge } from './challenges.ts'

/** Throws unless passkeys are enabled. */
export function requirePasskeys(services: AuthServices): void {
  if (!services.config.passkey.isEnabled) throw authFailure('passkey_disabled')
}

/** Throws unless the session may add and delete passkeys of its user. */
export function requirePasskeyAssurance(
  { store }: AuthServices,
  { caller }: UserRequest,
): Promise<void> {
  return requireAssurance(store, caller, 'manage passkeys')
}

/**
 * Consumes the challenge of a body. Throws when it is unknown, used, of another user, or too old.
 */
export async function takeChallenge(
  store: Store,
  given: { readonly id: string | undefined; readonly userId: string | null },
): Promise<WebAuthnChallengeRow> {
  if (!given.id) throw invalid('challenge_id is required', 'challenge_id')
  if (!UUID.test(given.id)) throw invalid('challenge_id must be a valid UUID', 'challenge_id')
  const { userId } = given
  const challenge = await takePasskeyChallenge(store, { id: given.id.toLowerCase(), userId })
  if (challenge === undefined) throw authFailure('webauthn_challenge_not_found')
  if (challenge.expiresAt <= store.now()) throw authFailure('webauthn_challenge_expired')
  return challenge
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** The id of a passkey in a path. Throws 404 when it is not one. */
export function parsePasskeyId(text: string): string {
  return parseUuid(text, 'passkey_id')
}

/** 404 for a passkey that the user does not have. */
export function unknownPasskey(): Error {
  return authFailure('validation_failed', { message: 'Passkey not found', kind: 'notFound' })
}

/** The options of a ceremony with their challenge. */
export function presentOptions(challenge: WebAuthnChallengeRow, options: object): Answer {
  return json({
    challenge_id: challenge.id,
    options,
    expires_at: Math.floor(challenge.expiresAt.getTime() / 1000),
  })
}

/** A passkey as JSON. */
export function presentPasskey(passkey: WebAuthnCredentialRow): Record<string, unknown> {
  return {
    id: passkey.id,
    ...(passkey.friendlyName !== '' && { friendly_name: passkey.friendlyName }),
    created_at: passkey.createdAt.toISOString(),
    ...(passkey.lastUsedAt !== null && { last_used_at: passkey.lastUsedAt.toISOString() }),
  }
}
