import type { Static } from 'typebox'

import { Type } from '#shared/schema-types.ts'

// A credential with a long certificate chain stays within these limits.
const bytes = (description: string, max: number) =>
  Type.String({ description, maxLength: max, pattern: '^[A-Za-z0-9_-]*$' })
const CREDENTIAL_ID_MAX = 1400

const envelope = {
  id: bytes('credential id', CREDENTIAL_ID_MAX),
  rawId: bytes('credential id', CREDENTIAL_ID_MAX),
  type: Type.Literal('public-key'),
}

/** The result of `navigator.credentials.create()`, as JSON. */
export const AttestationResponse = Type.Object({
  ...envelope,
  response: Type.Object({
    clientDataJSON: bytes('client data', 8192),
    attestationObject: bytes('attestation object', 65_536),
    transports: Type.Optional(Type.Array(Type.String({ maxLength: 64 }), { maxItems: 32 })),
  }),
})
export type AttestationResponse = Static<typeof AttestationResponse>

/** The result of `navigator.credentials.get()`, as JSON. */
export const AssertionResponse = Type.Object({
  ...envelope,
  response: Type.Object({
    clientDataJSON: bytes('client data', 8192),
    authenticatorData: bytes('authenticator data', 8192),
    signature: bytes('signature', 8192),
    userHandle: Type.Optional(Type.Union([bytes('user handle', 128), Type.Null()])),
  }),
})
export type AssertionResponse = Static<typeof AssertionResponse>
