import { randomBytes, timingSafeEqual } from 'node:crypto'

import { hashRawSync } from '@node-rs/argon2'

import type { PasswordConfig } from '#shared/config/auth-policies.ts'

type Parameters = PasswordConfig['argon2']

/** Which of the three functions of RFC 9106 it is. */
type Kind = 'd' | 'i' | 'id'

interface StoredHash {
  readonly kind: Kind
  readonly version: number
  readonly memoryKib: number
  readonly passes: number
  readonly parallelism: number
  readonly salt: Buffer
  readonly tag: Buffer
}

const SALT_BYTES = 16
const TAG_BYTES = 32
const VERSION = 19
// Hashes without a version were made by this one.
const VERSION_UNSTATED = 16

// The constants of the library, which it exports only for compilers.
const ALGORITHMS: Readonly<Record<Kind, number>> = { d: 0, i: 1, id: 2 }
const VERSIONS: Readonly<Record<number, number>> = { [VERSION_UNSTATED]: 0, [VERSION]: 1 }

/**
 * The text form of argon2 hashes (PHC string format). Libraries order the parameters differently.
 * Keys and associated data, which no user server stores, are not read.
 */
export const ARGON2_FORMAT =
  /^\$argon2(id|i|d)\$(?:v=(16|19)\$)?((?:[mtp]=\d{1,10},){2}[mtp]=\d{1,10})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{6,86})$/

/** Hashes a password with argon2id. The text contains the parameters and a new salt. */
export function hashArgon2id(password: string, parameters: Parameters): string {
  const { memoryKib, iterations: passes, parallelism } = parameters
  const made = { kind: 'id', version: VERSION, memoryKib, passes, parallelism } as const
  const salt = randomBytes(SALT_BYTES)
  return textOf(salt, compute(password, { ...made, salt, tagBytes: TAG_BYTES }), parameters)
}

/** A hash that matches no password; comparing with it takes as long as with any other. */
export function inventArgon2id(parameters: Parameters): string {
  return textOf(randomBytes(SALT_BYTES), randomBytes(TAG_BYTES), parameters)
}

function textOf(salt: Buffer, tag: Buffer, parameters: Parameters): string {
  return `${beginningOf(parameters)}${unpadded(salt)}$${unpadded(tag)}`
}

function beginningOf({ memoryKib, iterations, parallelism }: Parameters): string {
  return `$argon2id$v=${VERSION}$m=${memoryKib},t=${iterations},p=${parallelism}$`
}

/** Whether the password matches an argon2 hash of any kind and cost; false for other text. */
export function verifyArgon2(password: string, hash: string): boolean {
  const stored = readArgon2(hash)
  if (stored === undefined) return false
  const { tag } = stored
  return timingSafeEqual(compute(password, { ...stored, tagBytes: tag.length }), tag)
}

function compute(
  password: string,
  made: Omit<StoredHash, 'tag'> & { readonly tagBytes: number },
): Buffer {
  return hashRawSync(password, {
    algorithm: ALGORITHMS[made.kind],
    version: VERSIONS[made.version] as number,
    salt: made.salt,
    memoryCost: made.memoryKib,
    timeCost: made.passes,
    parallelism: made.parallelism,
    outputLen: made.tagBytes,
  })
}

/** Parses an encoded argon2 hash; undefined when it is malformed or cannot be computed. */
export function readArgon2(hash: string): StoredHash | undefined {
  const match = ARGON2_FORMAT.exec(hash)
  if (!match) return undefined
  const [, kind, version = VERSION_UNSTATED, parameters = '', salt = '', tag = ''] = match
  const numbers = new Map(
    parameters.split(',').map((part) => [part.slice(0, 1), Number(part.slice(2))]),
  )
  const [memoryKib, passes, parallelism] = ['m', 't', 'p'].map((name) => numbers.get(name) ?? 0)
  if (!memoryKib || !passes || !parallelism || memoryKib < 8 * parallelism) return undefined
  return {
    kind: kind as Kind,
    version: Number(version),
    memoryKib,
    passes,
    parallelism,
    salt: Buffer.from(salt, 'base64'),
    tag: Buffer.from(tag, 'base64'),
  }
}

/** Whether a hash has the format and cost of new ones. */
export function isCurrentHash(hash: string, parameters: Parameters): boolean {
  return hash.startsWith(beginningOf(parameters)) && ARGON2_FORMAT.test(hash)
}

function unpadded(bytes: Buffer): string {
  return bytes.toString('base64').replace(/=+$/, '')
}
