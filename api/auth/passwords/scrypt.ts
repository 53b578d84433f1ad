import { createCipheriv, scryptSync, timingSafeEqual } from 'node:crypto'

interface Costs {
  /** The binary logarithm of the work factor. */
  readonly exponent: number
  readonly r: number
  readonly p: number
}

/** `$scrypt$ln=14,r=8,p=1$salt$hash` with base64 fields. */
export const SCRYPT_FORMAT =
  /^\$scrypt\$ln=(\d{1,2}),r=(\d{1,4}),p=(\d{1,4})\$([A-Za-z0-9+/]+)={0,2}\$([A-Za-z0-9+/]{22,})={0,2}$/

/**
 * Firebase's variant: the derived key encrypts the project's signer key.
 * `$fbscrypt$v=1,n=14,r=8,p=1,ss=<salt separator>,sk=<signer key>$<salt>$<hash>`, all base64: its
 * command line exports the standard alphabet, its libraries the URL-safe one.
 */
export const FIREBASE_FORMAT =
  /^\$fbscrypt\$v=1,n=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})(?:,ss=([\w+/=-]*))?,sk=([\w+/-]{22,}={0,2})\$([\w+/-]+={0,2})\$([\w+/-]{22,}={0,2})$/

// 2^21 blocks of 128 bytes over all parallel instances: an imported hash must not exhaust the
// machine.
const WORK_MAX = 2 ** 21
const MEMORY_BYTES_MAX = 512 * 1024 * 1024

/**
 * False for costs that would occupy the machine for too long, and for invalid hashes of either
 * format.
 */
export function isBearableScrypt(hash: string): boolean {
  const match = SCRYPT_FORMAT.exec(hash) ?? FIREBASE_FORMAT.exec(hash)
  if (!match) return false
  const { exponent, r, p } = costsOf(match)
  // RFC 7914, section 2: the work factor is less than 2^(128 * r / 8).
  const isDefined = exponent >= 1 && exponent < 16 * r && p >= 1
  return isDefined && 2 ** exponent * r * p <= WORK_MAX
}

/** Whether the password matches a hash of this format. */
export function verifyScrypt(password: string, hash: string): boolean {
  const match = SCRYPT_FORMAT.exec(hash)
  if (!match) return false
  const [salt, tag] = match.slice(4).map((field) => Buffer.from(field, 'base64'))
  if (salt === undefined || tag === undefined) return false
  return timingSafeEqual(derive(password, { ...costsOf(match), salt, bytes: tag.length }), tag)
}

/** Whether the password matches a hash of Firebase's format. */
export function verifyFirebaseScrypt(password: string, hash: string): boolean {
  const match = FIREBASE_FORMAT.exec(hash)
  if (!match) return false
  const [separator, signerKey, salt, tag] = match
    .slice(4)
    .map((field) => Buffer.from(field ?? '', 'base64')) as [Buffer, Buffer, Buffer, Buffer]
  const fullSalt = Buffer.concat([salt, separator])
  const key = derive(password, { ...costsOf(match), salt: fullSalt, bytes: 32 })
  // Firebase counts from a zero block.
  const cipher = createCipheriv('aes-256-ctr', key, Buffer.alloc(16))
  const actual = Buffer.concat([cipher.update(signerKey), cipher.final()])
  return actual.length === tag.length && timingSafeEqual(actual, tag)
}

// All formats begin with these three.
function costsOf(match: RegExpExecArray): Costs {
  const [exponent = 0, r = 0, p = 0] = match.slice(1, 4).map(Number)
  return { exponent, r, p }
}

function derive(
  password: string,
  { exponent, r, p, salt, bytes }: Costs & { readonly salt: Buffer; readonly bytes: number },
): Buffer {
  return scryptSync(password, salt, bytes, { N: 2 ** exponent, r, p, maxmem: MEMORY_BYTES_MAX })
}
