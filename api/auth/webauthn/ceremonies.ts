import type { RegistrationResponseJSON } from '@simplewebauthn/server'

import type { AuthServices } from '#api/auth/services.ts'
import type { UserRow, WebAuthnCredentialRow } from '#shared/db/schema/auth.ts'

import type { AssertionResponse, AttestationResponse } from './schemas.ts'

/** A credential that an authenticator has just created. */
export type NewCredential = Pick<
  WebAuthnCredentialRow,
  | 'credentialId'
  | 'publicKey'
  | 'signCount'
  | 'transports'
  | 'aaguid'
  | 'isBackupEligible'
  | 'isBackedUp'
>

/** The columns that change with each use of a credential. */
export interface CredentialUse {
  readonly signCount: number
  readonly isBackedUp: boolean
}

/** Options as browsers read them, and their challenge. */
interface Ceremony {
  readonly challenge: string
  readonly options: object
}

// EdDSA, ES256 and RS256 as COSE identifiers.
const ALGORITHMS = [-8, -7, -257]

/** The options for `navigator.credentials.create()`. */
export async function beginRegistration(
  services: AuthServices,
  registration: {
    readonly user: UserRow
    readonly existing: readonly WebAuthnCredentialRow[]
    /** Passkeys are found without an account name; credentials of second factors need not be. */
    readonly isDiscoverable: boolean
    readonly ttlSeconds: number
  },
): Promise<Ceremony> {
  const { generateRegistrationOptions } = await loadLibrary()
  const { user, existing, isDiscoverable, ttlSeconds } = registration
  const { rpId, rpDisplayName } = services.config.webauthn
  const userName = user.email ?? user.phone ?? user.id
  const { name } = user.userMetadata
  const options = await generateRegistrationOptions({
    rpID: rpId,
    rpName: rpDisplayName,
    userID: new TextEncoder().encode(user.id),
    userName,
    userDisplayName: typeof name === 'string' && name !== '' ? name.slice(0, 255) : userName,
    timeout: ttlSeconds * 1000,
    supportedAlgorithmIDs: ALGORITHMS,
    excludeCredentials: existing.map(describe),
    authenticatorSelection: {
      residentKey: isDiscoverable ? 'required' : 'discouraged',
      userVerification: 'preferred',
    },
  })
  return { challenge: options.challenge, options }
}

/**
 * The options for `navigator.credentials.get()`. Without credentials any passkey of the site is
 * accepted.
 */
export async function beginAssertion(
  services: AuthServices,
  assertion: {
    readonly allowed: readonly WebAuthnCredentialRow[]
    readonly ttlSeconds: number
  },
): Promise<Ceremony> {
  const { generateAuthenticationOptions } = await loadLibrary()
  const { allowed, ttlSeconds } = assertion
  const options = await generateAuthenticationOptions({
    rpID: services.config.webauthn.rpId,
    timeout: ttlSeconds * 1000,
    userVerification: 'preferred',
    ...(allowed.length > 0 && { allowCredentials: allowed.map(describe) }),
  })
  return { challenge: options.challenge, options }
}

/** The credential of a response to `create()`; undefined when the response is not valid. */
export async function verifyRegistration(
  services: AuthServices,
  given: { readonly response: AttestationResponse; readonly challenge: string },
): Promise<NewCredential | undefined> {
  const { verifyRegistrationResponse } = await loadLibrary()
  const { rpId, rpOrigins } = services.config.webauthn
  return orUndefined(services, async () => {
    const verified = await verifyRegistrationResponse({
      response: await withoutStatement(given.response),
      expectedChallenge: given.challenge,
      expectedOrigin: [...rpOrigins],
      expectedRPID: rpId,
      requireUserVerification: false,
      supportedAlgorithmIDs: ALGORITHMS,
    })
    if (!verified.verified) return undefined
    const { credential, aaguid, credentialDeviceType, credentialBackedUp } =
      verified.registrationInfo
    return {
      credentialId: Buffer.from(credential.id, 'base64url'),
      publicKey: Buffer.from(credential.publicKey),
      signCount: credential.counter,
      transports: credential.transports ?? [],
      aaguid: aaguid === NO_AAGUID ? null : aaguid,
      isBackupEligible: credentialDeviceType === 'multiDevice',
      isBackedUp: credentialBackedUp,
    }
  })
}

/** The use of a credential by a response to `get()`; undefined when the response is not valid. */
export async function verifyAssertion(
  services: AuthServices,
  given: {
    readonly response: AssertionResponse
    readonly challenge: string
    readonly credential: WebAuthnCredentialRow
  },
): Promise<CredentialUse | undefined> {
  const { verifyAuthenticationResponse } = await loadLibrary()
  const { rpId, rpOrigins } = services.config.webauthn
  const { credential, response } = given
  return orUndefined(services, async () => {
    const { verified, authenticationInfo } = await verifyAuthenticationResponse({
      response: {
        ...response,
        response: { ...response.response, userHandle: response.response.userHandle ?? '' },
        clientExtensionResults: {},
      },
      expectedChallenge: given.challenge,
      expectedOrigin: [...rpOrigins],
      expectedRPID: rpId,
      requireUserVerification: false,
      credential: {
        id: credential.credentialId.toString('base64url'),
        publicKey: new Uint8Array(credential.publicKey),
        counter: credential.signCount,
      },
    })
    if (!verified) return undefined
    const { newCounter, credentialBackedUp } = authenticationInfo
    return { signCount: newCounter, isBackedUp: credentialBackedUp }
  })
}

const NO_AAGUID = '00000000-0000-0000-0000-000000000000'

// Loaded by the first ceremony: a server without WebAuthn saves its 5 MB.
function loadLibrary() {
  return import('@simplewebauthn/server')
}

function describe({ credentialId, transports }: WebAuthnCredentialRow) {
  return { id: credentialId.toString('base64url'), transports: [...transports] }
}

// No attestation is requested, so a statement is ignored, as the standard permits. The library
// would otherwise load the revocation lists that a client's certificates name.
async function withoutStatement(given: AttestationResponse): Promise<RegistrationResponseJSON> {
  const { decodeAttestationObject, isoBase64URL, isoCBOR } = await import(
    '@simplewebauthn/server/helpers'
  )
  const { attestationObject, clientDataJSON, transports } = given.response
  const decoded = decodeAttestationObject(isoBase64URL.toBuffer(attestationObject))
  const bare = new Map<string, unknown>([
    ['fmt', 'none'],
    ['attStmt', new Map()],
    ['authData', decoded.get('authData')],
  ])
  return {
    id: given.id,
    rawId: given.rawId,
    type: 'public-key',
    clientExtensionResults: {},
    response: {
      clientDataJSON,
      attestationObject: isoBase64URL.fromBuffer(
        isoCBOR.encode(bare as Parameters<typeof isoCBOR.encode>[0]),
      ),
      ...(transports && { transports: transports.slice(0, TRANSPORTS_MAX) }),
    },
  }
}

const TRANSPORTS_MAX = 10

// The library throws for every reason to refuse, and its parsers throw errors for malformed bytes.
async function orUndefined<T>(
  services: AuthServices,
  verify: () => Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    return await verify()
  } catch (error) {
    const reason = error instanceof Error ? error.message : ''
    services.log.debug({ operation: 'auth.webauthn', reason }, 'ceremony refused')
    return undefined
  }
}
