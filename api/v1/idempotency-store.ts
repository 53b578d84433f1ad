import { createCipheriv, createDecipheriv, createHash, randomBytes, randomUUID } from 'node:crypto'

import type { Redis } from 'ioredis'

import { defineScript, runScript } from '#shared/queue/connection.ts'

const KEPT_MS = 86_400_000
// A process that dies gives its keys free after this; a living one renews them.
const LEASE_MS = 10_000
// Of one organization in a day, in Redis.
const ORGANIZATION_BYTES_MAX = 256 * 1024 * 1024

/**
 * Begins a request under a key. KEYS: record, lease; ARGV: fingerprint, owner, time to keep, lease.
 * Returns `mine` when the request is to be run, `running` while another does, `other` when the key
 * belongs to another request, or `done` and the recorded answer.
 */
const BEGIN = defineScript(`
local found = redis.call('HMGET', KEYS[1], 'fingerprint', 'answer')
if found[1] and found[1] ~= ARGV[1] then return {'other'} end
if found[2] then return {'done', found[2]} end
if redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[4]) then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'mine'}
end
return {'running'}
`)

/**
 * Records the answer, or forgets the request when the answer is empty or the organization's answers
 * of the day are too large together. KEYS: as above, bytes of the organization; ARGV: owner, answer,
 * most bytes, time to keep.
 */
const END = defineScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
local length = #ARGV[2]
local kept = tonumber(redis.call('GET', KEYS[3]) or '0')
if length == 0 or kept + length > tonumber(ARGV[3]) then return redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
redis.call('INCRBY', KEYS[3], length)
if kept == 0 then redis.call('PEXPIRE', KEYS[3], ARGV[4]) end
return 1
`)

/** Keeps the lease. KEYS: lease; ARGV: owner, milliseconds. */
const RENEW = defineScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`)

/** An answer as it is replayed. */
export interface RecordedAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
}

export type Beginning =
  | { readonly state: 'mine' | 'running' | 'other' }
  | { readonly state: 'done'; readonly answer: RecordedAnswer }

/** One request's claim on a key. */
export interface Claim {
  /** Names the record; the key itself is not stored. */
  readonly id: string
  readonly organizationId: string
  readonly fingerprint: string
  readonly owner: string
  /** Only who knows the key can read the answer, which may hold a secret. */
  readonly cipherKey: Buffer
}

/** A claim on a key of an organization by one request. */
export function claimOf(organizationId: string, key: string, fingerprint: string): Claim {
  const hash = (purpose: string): Buffer =>
    createHash('sha256').update(`${purpose}\n${organizationId}\n${key}`).digest()
  return {
    ...{ organizationId, fingerprint, owner: randomUUID() },
    id: hash('id').toString('hex'),
    cipherKey: hash('answer'),
  }
}

/** What was asked under which key, for a day. */
export interface IdempotencyStore {
  begin(claim: Claim): Promise<Beginning>
  renew(claim: Claim): Promise<void>
  /** Records the answer for the rest of the day. */
  finish(claim: Claim, answer: RecordedAnswer): Promise<void>
  /** Lets the next request under the key run. */
  forget(claim: Claim): Promise<void>
}

/** How often a lease must be renewed. */
export const RENEW_INTERVAL_MS = LEASE_MS / 3

/** Opens the record of keys in Redis; `prefix` names the installation. */
export function openIdempotencyStore(redis: Redis, prefix: string): IdempotencyStore {
  const recordOf = ({ id }: Claim): string => `${prefix}:idempotency:${id}`
  const leaseOf = (claim: Claim): string => `${recordOf(claim)}:lease`
  const end = (claim: Claim, answer: string): Promise<unknown> => {
    const bytes = `${prefix}:idempotency:bytes:${claim.organizationId}`
    const args = [claim.owner, answer, ORGANIZATION_BYTES_MAX, KEPT_MS]
    return runScript(redis, END, [recordOf(claim), leaseOf(claim), bytes], args)
  }
  return {
    async begin(claim) {
      const args = [claim.fingerprint, claim.owner, KEPT_MS, LEASE_MS]
      const keys = [recordOf(claim), leaseOf(claim)]
      const [state, text] = (await runScript(redis, BEGIN, keys, args)) as [
        Beginning['state'],
        string?,
      ]
      if (state !== 'done') return { state }
      return { state, answer: unseal(text as string, claim.cipherKey) }
    },
    async renew(claim) {
      await runScript(redis, RENEW, [leaseOf(claim)], [claim.owner, LEASE_MS])
    },
    async finish(claim, answer) {
      await end(claim, seal(answer, claim.cipherKey))
    },
    async forget(claim) {
      await end(claim, '')
    },
  }
}

const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16

function seal({ body, ...head }: RecordedAnswer, key: Buffer): string {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, key, nonce)
  const text = Buffer.from(`${JSON.stringify(head)}\n`)
  const sealed = [cipher.update(text), cipher.update(body), cipher.final()]
  return Buffer.concat([nonce, ...sealed, cipher.getAuthTag()]).toString('base64')
}

function unseal(text: string, key: Buffer): RecordedAnswer {
  const bytes = Buffer.from(text, 'base64')
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES))
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
  const plain = Buffer.concat([
    decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES)),
    decipher.final(),
  ])
  const end = plain.indexOf('\n')
  return { ...JSON.parse(plain.toString('utf8', 0, end)), body: plain.subarray(end + 1) }
}
