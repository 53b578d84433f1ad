import { createHash, createHmac, randomBytes, randomInt, timingSafeEqual } from 'node:crypto'

/** SHA-256 of a bearer secret; the database stores only this digest. */
export function sha256(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

/** A secret of 128 bits as 22 characters that are safe in a URL. */
export function randomSecret(): string {
  return randomBytes(16).toString('base64url')
}

/** The token of a link: 56 hexadecimal digits, as clients know them. */
export function randomLinkToken(): string {
  return randomBytes(28).toString('hex')
}

/** A code of decimal digits, zero padded. */
export function randomDigits(length: number): string {
  return String(randomInt(0, 10 ** Math.min(length, 12))).padStart(length, '0')
}

/**
 * Keyed hash of a short code. Six digits have only a million hashes: without the key, read access
 * to the table would reveal the codes.
 */
export function codeHmac(key: string, scope: readonly string[], code: string): Buffer {
  return createHmac('sha256', key)
    .update([...scope, code].join('\n'))
    .digest()
}

/** Compares in constant time. */
export function isSameBytes(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b)
}
