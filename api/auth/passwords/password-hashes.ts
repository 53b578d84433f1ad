import { compareSync } from '@node-rs/bcrypt'

import { ARGON2_FORMAT, readArgon2, verifyArgon2 } from './argon2.ts'
import {
  FIREBASE_FORMAT,
  isBearableScrypt,
  SCRYPT_FORMAT,
  verifyFirebaseScrypt,
  verifyScrypt,
} from './scrypt.ts'

interface Scheme {
  readonly format: RegExp
  /**
   * False for parameters that would occupy the machine for too long: hashes may come from outside.
   */
  isBearable(hash: string): boolean
  /** Computes at once, for as long as the parameters require. */
  verify(password: string, hash: string): boolean
}

// Our own hashes, and those of other servers.
const SCHEMES: readonly Scheme[] = [
  {
    format: ARGON2_FORMAT,
    isBearable(hash) {
      const made = readArgon2(hash)
      return (
        made !== undefined &&
        made.memoryKib <= ARGON2_MEMORY_KIB_MAX &&
        made.memoryKib * made.passes <= ARGON2_WORK_KIB_MAX &&
        made.passes <= ARGON2_PASSES_MAX &&
        made.parallelism <= ARGON2_PARALLELISM_MAX
      )
    },
    verify: verifyArgon2,
  },
  {
    format: /^\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}$/,
    isBearable(hash) {
      const cost = Number(hash.slice(4, 6))
      return cost >= BCRYPT_COST_MIN && cost <= BCRYPT_COST_MAX
    },
    verify: compareSync,
  },
  { format: FIREBASE_FORMAT, isBearable: isBearableScrypt, verify: verifyFirebaseScrypt },
  { format: SCRYPT_FORMAT, isBearable: isBearableScrypt, verify: verifyScrypt },
]

const ARGON2_MEMORY_KIB_MAX = 1024 * 1024
const ARGON2_WORK_KIB_MAX = 4 * ARGON2_MEMORY_KIB_MAX
const ARGON2_PASSES_MAX = 64
const ARGON2_PARALLELISM_MAX = 64
// The algorithm is undefined below this cost, so no password would match.
const BCRYPT_COST_MIN = 4
const BCRYPT_COST_MAX = 15
const HASH_CHARACTERS_MAX = 1024

/** Whether `hash` is of a kind that can be verified at an acceptable cost. */
export function isKnownPasswordHash(hash: string): boolean {
  return (
    hash.length <= HASH_CHARACTERS_MAX &&
    SCHEMES.some((scheme) => scheme.format.test(hash) && scheme.isBearable(hash))
  )
}

/** Whether a password matches a hash of any known algorithm and cost. */
export function verifyPasswordHash(password: string, hash: string): boolean {
  const scheme = SCHEMES.find(({ format }) => format.test(hash))
  return scheme?.verify(password, hash) ?? false
}
