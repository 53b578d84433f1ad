import { gatewayCheck } from '#api/auth/delivery/send-sms.ts'
import { authFailure, invalid } from '#api/auth/errors.ts'
import type { FactorVerifyBody, Parsed } from '#api/auth/schemas.ts'
import { codeHmac, isSameBytes } from '#api/auth/secrets.ts'
import type { AuthServices } from '#api/auth/services.ts'
import type { Store } from '#api/auth/store.ts'
import {
  type CredentialUse,
  type NewCredential,
  verifyAssertion,
  verifyRegistration,
} from '#api/auth/webauthn/ceremonies.ts'
import {
  insertCredential,
  listFactorCredentials,
  useCredential,
} from '#api/auth/webauthn/credentials.ts'
import type { ChallengeRow, FactorRow } from '#shared/db/schema/auth.ts'

import { acceptTotpStep } from './factors.ts'
import { findTotpStep } from './totp.ts'

type Body = Parsed<typeof FactorVerifyBody>

/** The client's proof: a code, or the answer of an authenticator. */
type Given =
  | { readonly kind: 'code'; readonly code: string }
  | { readonly kind: 'webauthn'; readonly webauthn: NonNullable<Body['webauthn']> }

/** A verified proof and the values to store. */
type Proof =
  /** For an authenticator's code, its time step. */
  | { readonly kind: 'code'; readonly step?: number }
  | { readonly kind: 'registration'; readonly made: NewCredential }
  | { readonly kind: 'assertion'; readonly id: string; readonly use: CredentialUse }

/** The proof in a request body, by the type of the factor. */
export function parseGiven(factor: FactorRow, body: Body): Given {
  if (factor.factorType !== 'webauthn') {
    if (!body.code) throw invalid('Code needs to be non-empty', 'code')
    return { kind: 'code', code: body.code }
  }
  const { webauthn } = body
  if (webauthn === undefined) throw invalid('WebAuthn config required', 'webauthn')
  const type = factor.status === 'verified' ? 'request' : 'create'
  if (webauthn.type !== type) {
    throw invalid(
      `WebAuthn type must be ${type} for a factor that is ${factor.status}`,
      'webauthn.type',
    )
  }
  return { kind: 'webauthn', webauthn }
}

interface Attempt {
  readonly factor: FactorRow
  readonly challenge: ChallengeRow
  readonly given: Given
}

/** The verified proof; undefined when the body does not prove the factor. */
export async function findProof(
  services: AuthServices,
  { factor, challenge, given }: Attempt,
): Promise<Proof | undefined> {
  if (given.kind === 'webauthn') {
    return findCredential(services, { factor, challenge, webauthn: given.webauthn })
  }
  const { code } = given
  if (factor.factorType === 'totp') return findStep(services, factor, code)
  return (await isSentCode(services, { factor, challenge, code })) ? { kind: 'code' } : undefined
}

/**
 * Stores a new credential, or the use of a credential or code, in the transaction that raises the
 * session. Throws when a concurrent request has used the same one.
 */
export async function keepProof(store: Store, factor: FactorRow, proof: Proof): Promise<void> {
  if (proof.kind === 'code' && proof.step !== undefined) {
    // The sign-in after an enrolment happens within the 30 seconds of its code, so the code is
    // accepted once more, but no concurrent enrolment may use it.
    const used = factor.status === 'unverified' ? proof.step - 1 : proof.step
    if (!(await acceptTotpStep(store, factor.id, used))) throw wrongProof(factor)
  }
  if (proof.kind === 'registration') {
    const fields = { userId: factor.userId, factorId: factor.id, friendlyName: factor.friendlyName }
    const stored = await insertCredential(store, { ...proof.made, ...fields })
    if (stored === undefined) throw authFailure('webauthn_credential_exists')
  }
  if (proof.kind === 'assertion' && !(await useCredential(store, proof.id, proof.use))) {
    throw wrongProof(factor)
  }
}

/** The refusal of a wrong proof, by the type of its factor. */
export function wrongProof({ factorType }: FactorRow): Error {
  if (factorType === 'webauthn') {
    return authFailure('webauthn_verification_failed', { param: 'webauthn.credential_response' })
  }
  const message =
    factorType === 'totp' ? 'Invalid TOTP code entered' : 'Invalid MFA Phone code entered'
  return authFailure('mfa_verification_failed', { message, param: 'code' })
}

async function findCredential(
  services: AuthServices,
  attempt: Pick<Attempt, 'factor'> & {
    readonly challenge: ChallengeRow
    readonly webauthn: NonNullable<Body['webauthn']>
  },
): Promise<Proof | undefined> {
  const { factor, webauthn } = attempt
  const challenge = attempt.challenge.webauthnChallenge
  if (challenge === null) return undefined
  if (webauthn.type === 'create') {
    const response = webauthn.credential_response
    const made = await verifyRegistration(services, { response, challenge })
    return made && { kind: 'registration', made }
  }
  const response = webauthn.credential_response
  const credentials = await listFactorCredentials(services.store, factor.userId)
  const credential = credentials.find(
    ({ factorId, credentialId }) =>
      factorId === factor.id && credentialId.toString('base64url') === response.id,
  )
  if (credential === undefined) return undefined
  const use = await verifyAssertion(services, { response, challenge, credential })
  return use && { kind: 'assertion', id: credential.id, use }
}

// A code that was observed while being typed must not be accepted a second time (RFC 6238, 5.2).
function findStep(services: AuthServices, factor: FactorRow, code: string): Proof | undefined {
  const step = findTotpStep(factor.secret as string, code, services.clock.now())
  const isNew = step !== undefined && step > (factor.lastTotpStep ?? Number.NEGATIVE_INFINITY)
  return isNew ? { kind: 'code', step } : undefined
}

async function isSentCode(
  services: AuthServices,
  proof: { readonly factor: FactorRow; readonly challenge: ChallengeRow; readonly code: string },
): Promise<boolean> {
  const { factor, challenge, code } = proof
  const phone = factor.phone as string
  const ask = gatewayCheck(services, { kind: 'phone', phone }, code)
  if (ask !== undefined) return ask()
  const hmac = codeHmac(services.config.jwt.secret, ['challenge', challenge.id], code)
  return challenge.codeHmac !== null && isSameBytes(challenge.codeHmac, hmac)
}
