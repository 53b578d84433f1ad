import { randomBytes, randomFillSync } from 'node:crypto'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
const pool = Buffer.alloc(4096)
let poolOffset = pool.length

/** A random identifier such as `cmpl-6Xq…`: the prefix, then `length` letters and digits. */
export function randomId(prefix: string, length = 24): string {
  let id = prefix
  while (id.length < prefix.length + length) {
    const byte = nextByte()
    // Rejection keeps the 62 characters equally likely.
    if (byte < 248) id += ALPHABET[byte % 62]
  }
  return id
}

/**
 * An identifier that sorts by creation time: the prefix, 10 characters of time, 14 random
 * characters.
 */
export function timeOrderedId(prefix: string, nowMs: number): string {
  return prefix + nowMs.toString(36).padStart(10, '0') + randomId('', 14)
}

/** A request id of the form `req_` and 32 lower-case hexadecimal digits. */
export function requestId(): string {
  return `req_${randomBytes(16).toString('hex')}`
}

function nextByte(): number {
  if (poolOffset === pool.length) {
    randomFillSync(pool)
    poolOffset = 0
  }
  return pool[poolOffset++] as number
}
