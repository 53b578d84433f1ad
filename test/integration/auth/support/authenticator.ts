import {
  createHash,
  createSign,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto'

import { isoCBOR } from '@simplewebauthn/server/helpers'

/** Options that a server sends, as far as an authenticator reads them. */
interface Options {
  readonly challenge: string
  readonly rp?: { readonly id?: string }
  readonly rpId?: string
  readonly user?: { readonly id: string }
  readonly excludeCredentials?: readonly { readonly id: string }[]
  readonly allowCredentials?: readonly { readonly id: string }[]
}

/** The changes of a dishonest page or device. */
interface Tampering {
  readonly origin?: string
  readonly rpId?: string
  readonly challenge?: string
  readonly counter?: number
  readonly userHandle?: string
  readonly fmt?: string
  readonly isUserPresent?: boolean
  readonly type?: string
}

/** An authenticator in software that holds one ES256 credential. */
export interface Authenticator {
  readonly credentialId: string
  create(options: Options, tampering?: Tampering): object
  get(options: Options, tampering?: Tampering): object
}

const [USER_PRESENT, USER_VERIFIED, HAS_CREDENTIAL] = [0x01, 0x04, 0x40]

/** Makes an authenticator for pages of `origin`. */
export function createAuthenticator(origin: string): Authenticator {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const credentialId = randomBytes(32)
  let counter = 0
  let userHandle = ''
  const rpIdOf = (options: Options, { rpId }: Tampering) =>
    rpId ?? options.rpId ?? options.rp?.id ?? ''
  const authenticatorData = (rpId: string, tampering: Tampering, flags: number): Buffer => {
    const count = Buffer.alloc(4)
    count.writeUInt32BE(tampering.counter ?? ++counter)
    const present = tampering.isUserPresent === false ? 0 : USER_PRESENT | USER_VERIFIED
    const hash = createHash('sha256').update(rpId).digest()
    return Buffer.concat([hash, Buffer.from([present | flags]), count])
  }
  const clientData = (type: string, options: Options, tampering: Tampering): Buffer =>
    Buffer.from(
      JSON.stringify({
        type: tampering.type ?? type,
        challenge: tampering.challenge ?? options.challenge,
        origin: tampering.origin ?? origin,
        crossOrigin: false,
      }),
    )
  const answer = (response: object): object => {
    const id = credentialId.toString('base64url')
    return { id, rawId: id, type: 'public-key', clientExtensionResults: {}, response }
  }
  return {
    credentialId: credentialId.toString('base64url'),
    create(options, tampering = {}) {
      userHandle = options.user?.id ?? ''
      const client = clientData('webauthn.create', options, tampering)
      const length = Buffer.alloc(2)
      length.writeUInt16BE(credentialId.length)
      const data = Buffer.concat([
        authenticatorData(rpIdOf(options, tampering), tampering, HAS_CREDENTIAL),
        Buffer.alloc(16),
        length,
        credentialId,
        coseKey(publicKey),
      ])
      return answer({
        clientDataJSON: client.toString('base64url'),
        attestationObject: attestationObject(data, tampering.fmt ?? 'none'),
        transports: ['internal'],
      })
    },
    get(options, tampering = {}) {
      const client = clientData('webauthn.get', options, tampering)
      const data = authenticatorData(rpIdOf(options, tampering), tampering, 0)
      const hash = createHash('sha256').update(client).digest()
      const signature = createSign('sha256').update(data).update(hash).sign(privateKey)
      return answer({
        clientDataJSON: client.toString('base64url'),
        authenticatorData: data.toString('base64url'),
        signature: signature.toString('base64url'),
        userHandle: tampering.userHandle ?? userHandle,
      })
    },
  }
}

function coseKey(publicKey: KeyObject): Uint8Array {
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' })
  // COSE: key type EC2, algorithm ES256, curve P-256.
  const key = new Map<number, number | Uint8Array>([
    ...([
      [1, 2],
      [3, -7],
      [-1, 1],
    ] as const),
    [-2, new Uint8Array(Buffer.from(x, 'base64url'))],
    [-3, new Uint8Array(Buffer.from(y, 'base64url'))],
  ])
  return isoCBOR.encode(key as Parameters<typeof isoCBOR.encode>[0])
}

function attestationObject(authData: Buffer, fmt: string): string {
  const attStmt = new Map<string, unknown>(fmt === 'none' ? [] : [['sig', new Uint8Array(8)]])
  const object = new Map<string, unknown>([
    ...([
      ['fmt', fmt],
      ['attStmt', attStmt],
      ['authData', new Uint8Array(authData)],
    ] as const),
  ])
  const encoded = isoCBOR.encode(object as Parameters<typeof isoCBOR.encode>[0])
  return Buffer.from(encoded).toString('base64url')
}
