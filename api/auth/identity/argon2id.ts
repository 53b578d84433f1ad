import { randomBytes, timingSafeEqual } from 'node:crypto'

import type { PasswordConfig } from '#shared/config/auth-policies.ts'

import type { ComputeArgon2 } from './hash-threads.ts'

type Parameters = PasswordConfig['argon2']

const SALT_BYTES = 16
const TAG_BYTES = 32
// The text form of version 1.3, in the order that the standard gives.
const FORMAT =
  /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{16,86})$/

/** Hashes a password; the parameters and a salt of its own stand in the text. */
export async function hashArgon2id(
  compute: ComputeArgon2,
  password: string,
  parameters: Parameters,
): Promise<string> {
  const nonce = randomBytes(SALT_BYTES)
  const { memoryKib, iterations: passes, parallelism } = parameters
  const costs = { memoryKib, passes, parallelism, tagLength: TAG_BYTES }
  return textOf(nonce, await compute({ message: password, nonce, ...costs }), parameters)
}

/** A hash that no password has: comparing with it takes as long as with any other. */
export function inventArgon2id(parameters: Parameters): string {
  return textOf(randomBytes(SALT_BYTES), randomBytes(TAG_BYTES), parameters)
}

function textOf(nonce: Buffer, tag: Buffer, parameters: Parameters): string {
  const { memoryKib, iterations, parallelism } = parameters
  const numbers = `m=${memoryKib},t=${iterations},p=${parallelism}`
  return `$argon2id$v=19$${numbers}$${unpadded(nonce)}$${unpadded(tag)}`
}

/** Whether it is the password; undefined when the hash is of another form. */
export async function verifyArgon2id(
  compute: ComputeArgon2,
  password: string,
  hash: string,
): Promise<boolean | undefined> {
  const match = FORMAT.exec(hash)
  if (!match) return undefined
  const [, memory, passes, lanes, salt = '', tag = ''] = match
  const isComputable =
    Number(lanes) >= 1 && Number(memory) >= 8 * Number(lanes) && Number(passes) >= 1
  if (!isComputable) return false
  const expected = Buffer.from(tag, 'base64')
  const actual = await compute({
    message: password,
    nonce: Buffer.from(salt, 'base64'),
    memoryKib: Number(memory),
    passes: Number(passes),
    parallelism: Number(lanes),
    tagLength: expected.length,
  })
  return timingSafeEqual(actual, expected)
}

/** True when a hash has the form and the costs that new ones get. */
export function isCurrentHash(hash: string, parameters: Parameters): boolean {
  const match = FORMAT.exec(hash)
  if (!match) return false
  const { memoryKib, iterations, parallelism } = parameters
  return [memoryKib, iterations, parallelism].every(
    (wanted, index) => Number(match[index + 1]) === wanted,
  )
}

function unpadded(bytes: Buffer): string {
  return bytes.toString('base64').replace(/=+$/, '')
}
