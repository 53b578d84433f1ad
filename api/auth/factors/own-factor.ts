import { authFailure, invalid } from '#api/auth/errors.ts'
import type { AuthServices } from '#api/auth/services.ts'
import type { Store } from '#api/auth/store.ts'
import type { FactorRow, SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import { findFactor, hasVerifiedFactor } from './factors.ts'

/** The format of ids. */
export const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** Throws for anonymous users, who cannot have second factors. */
export function requireNamedUser(user: UserRow): void {
  if (!user.isAnonymous) return
  throw authFailure('no_authorization', {
    message: 'Anonymous user not allowed to perform these actions',
    kind: 'accessDenied',
  })
}

/**
 * Throws unless the session may change how its user signs in, which needs the second level if the
 * user has a second factor. Adding a first factor ends all other sessions of the first level, so a
 * change that requires a live session under the lock on the user needs no second check.
 */
export async function requireAssurance(
  store: Store,
  caller: { readonly user: UserRow; readonly session: SessionRow | undefined },
  purpose: string,
): Promise<void> {
  const { user, session } = caller
  if (session?.aal === 'aal2' || !(await hasVerifiedFactor(store, user.id))) return
  const message = `AAL2 session is required to ${purpose} when MFA is enabled`
  throw authFailure('insufficient_aal', { message })
}

/** The factor of the path, which must be the user's own. */
export async function getOwnFactor(
  services: AuthServices,
  user: UserRow,
  factorId: string,
): Promise<FactorRow> {
  const factor = await findFactor(services.store, user.id, parseUuid(factorId, 'factor_id'))
  if (factor === undefined) throw authFailure('mfa_factor_not_found')
  return factor
}

/** Throws unless factors of this type may be verified. */
export function requireVerifiable(services: AuthServices, { factorType }: FactorRow): void {
  if (services.config.mfa[factorType].canVerify) return
  throw authFailure(`mfa_${factorType}_verify_not_enabled`)
}

/** A UUID of a path. Throws 404 for other text, because nothing can be found with it. */
export function parseUuid(text: string, name: string): string {
  if (UUID.test(text)) return text.toLowerCase()
  throw authFailure('validation_failed', {
    message: `${name} must be an UUID`,
    kind: 'notFound',
    param: name,
  })
}

/** A challenge id of a body. Throws 400 when it is not a UUID, and 422 when it is missing. */
export function parseChallengeId(text: string | undefined): string {
  if (!text) throw unknownChallenge()
  if (UUID.test(text)) return text.toLowerCase()
  throw invalid('challenge_id must be an UUID', 'challenge_id')
}

/** 422 for a challenge that is not of the factor. */
export function unknownChallenge(): Error {
  return authFailure('mfa_factor_not_found', {
    message: 'MFA factor with the provided challenge ID not found',
    kind: 'unprocessable',
    param: 'challenge_id',
  })
}
