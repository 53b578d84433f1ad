import { randomBytes, timingSafeEqual } from 'node:crypto'

import type { PasswordConfig } from '#shared/config/auth-policies.ts'

import type { Argon2Costs, Argon2Kind, Argon2Version, ComputeArgon2 } from './hash-threads.ts'

type Parameters = PasswordConfig['argon2']

/** What the text of a hash says: how it was made, and what came out. */
interface StoredHash extends Argon2Costs {
  readonly kind: Argon2Kind
  readonly version: Argon2Version
  readonly nonce: Buffer
  readonly tag: Buffer
}

const SALT_BYTES = 16
const TAG_BYTES = 32
const VERSION = 19
// Before versions were written into the text there was only this one.
const VERSION_UNSTATED = 16

/**
 * The text form of argon2 hashes (PHC string format). The order of the parameters is each
 * library's own; keys and associated data, which no server of users stores, are not read.
 */
export const ARGON2_FORMAT =
  /^\$argon2(id|i|d)\$(?:v=(16|19)\$)?((?:[mtp]=\d{1,10},){2}[mtp]=\d{1,10})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{6,86})$/

/** Hashes a password with argon2id; the parameters and a salt of its own stand in the text. */
export async function hashArgon2id(
  compute: ComputeArgon2,
  password: string,
  parameters: Parameters,
): Promise<string> {
  const nonce = randomBytes(SALT_BYTES)
  const { memoryKib, iterations: passes, parallelism } = parameters
  const costs = { memoryKib, passes, parallelism, tagLength: TAG_BYTES }
  const request = { kind: 'id', version: VERSION, message: password, nonce, ...costs } as const
  return textOf(nonce, await compute(request), parameters)
}

/** A hash that no password has: comparing with it takes as long as with any other. */
export function inventArgon2id(parameters: Parameters): string {
  return textOf(randomBytes(SALT_BYTES), randomBytes(TAG_BYTES), parameters)
}

function textOf(nonce: Buffer, tag: Buffer, parameters: Parameters): string {
  return `${beginningOf(parameters)}${unpadded(nonce)}$${unpadded(tag)}`
}

function beginningOf({ memoryKib, iterations, parallelism }: Parameters): string {
  return `$argon2id$v=${VERSION}$m=${memoryKib},t=${iterations},p=${parallelism}$`
}

/** Whether it is the password of an argon2 hash of any kind and costs; false for text that is none. */
export async function verifyArgon2(
  compute: ComputeArgon2,
  password: string,
  hash: string,
): Promise<boolean> {
  const stored = readArgon2(hash)
  if (stored === undefined) return false
  const { tag, ...made } = stored
  return timingSafeEqual(await compute({ message: password, ...made }), tag)
}

/** What the text of an argon2 hash says; undefined when it is none, or none that can be computed. */
export function readArgon2(hash: string): StoredHash | undefined {
  const match = ARGON2_FORMAT.exec(hash)
  if (!match) return undefined
  const [, kind, version = VERSION_UNSTATED, parameters = '', salt = '', key = ''] = match
  const numbers = new Map(
    parameters.split(',').map((part) => [part.slice(0, 1), Number(part.slice(2))]),
  )
  const [memoryKib, passes, parallelism] = ['m', 't', 'p'].map((name) => numbers.get(name) ?? 0)
  if (!memoryKib || !passes || !parallelism || memoryKib < 8 * parallelism) return undefined
  const tag = Buffer.from(key, 'base64')
  return {
    ...{ kind: kind as Argon2Kind, version: Number(version) as Argon2Version },
    ...{ memoryKib, passes, parallelism, tagLength: tag.length },
    ...{ nonce: Buffer.from(salt, 'base64'), tag },
  }
}

/** True when a hash has the form and the costs that new ones get. */
export function isCurrentHash(hash: string, parameters: Parameters): boolean {
  return hash.startsWith(beginningOf(parameters)) && ARGON2_FORMAT.test(hash)
}

function unpadded(bytes: Buffer): string {
  return bytes.toString('base64').replace(/=+$/, '')
}
