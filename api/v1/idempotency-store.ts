import { createCipheriv, createDecipheriv, createHash, randomBytes, randomUUID } from 'node:crypto'

import type { Redis } from 'ioredis'

import { defineScript, runScript } from '#shared/queue/connection.ts'
import { type ContentCipher, readContent } from '#shared/queue/content-cipher.ts'

import type { Caller, StoredJob } from './request-context.ts'

const KEPT_MS = 86_400_000
// The lease of a dead process ends after this time; a living process renews it.
const LEASE_MS = 6000
/** Bytes of a record in Redis beside its answer: names, fingerprint, time. */
const RECORD_BYTES = 600
/** The part of the bytes of a day that one organization may take. */
const ORGANIZATION_SHARE = 0.25

/**
 * Begins a request under a key. KEYS: record, lease, its jobs; ARGV: owner, time to keep, lease,
 * and the fingerprint under each secret of the installation, the one to store first. Returns
 * `mine`, when it began and the jobs that a dead process left when the request is to be run,
 * `running` while another does, `other` when the key belongs to another request, or `done` and the
 * recorded answer; each with the digest of the form behind the state.
 */
const BEGIN = defineScript(`
local found = redis.call('HMGET', KEYS[1], 'fingerprint', 'answer', 'form', 'startedAt')
local form = found[3] or ''
local isSame = not found[1]
for i = 4, #ARGV do isSame = isSame or found[1] == ARGV[i] end
if not isSame then return {'other', form} end
if found[2] then return {'done', form, found[2]} end
-- After a lost connection the client sends the same command again.
local isAgain = redis.call('GET', KEYS[2]) == ARGV[1]
if isAgain or redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[3]) then
  local time = redis.call('TIME')
  local startedAt = found[4] or string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.call('HSET', KEYS[1], 'fingerprint', found[1] or ARGV[4], 'startedAt', startedAt)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {'mine', form, startedAt, redis.call('HGETALL', KEYS[3])}
end
return {'running', form}
`)

/**
 * Stores a job, so that another process can adopt it. KEYS: record, lease, its jobs; ARGV: owner,
 * digest of the form, number of the job, the job, time to keep.
 */
const KEEP = defineScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'form', ARGV[2]) end
redis.call('HSET', KEYS[3], ARGV[3], ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return 1
`)

/**
 * Records the answer, or discards the request when the answer is empty or the answers of the day
 * are too large together, those of the organization or all. KEYS: as above, bytes of the
 * organization, bytes of all; ARGV: owner, answer, most bytes of an organization, of all, time to
 * keep, digest of the form. Returns 0 if another process has the request.
 */
const END = defineScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2], KEYS[3])
local length = #ARGV[2] + ${RECORD_BYTES}
local isOver = ARGV[2] == ''
for i = 4, 5 do
  isOver = isOver or tonumber(redis.call('GET', KEYS[i]) or '0') + length > tonumber(ARGV[i - 1])
end
if isOver then
  redis.call('DEL', KEYS[1])
  return 1
end
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'form', ARGV[6]) end
for i = 4, 5 do
  if redis.call('INCRBY', KEYS[i], length) == length then redis.call('PEXPIRE', KEYS[i], ARGV[5]) end
end
return 1
`)

/** Renews the lease. KEYS: lease; ARGV: owner, milliseconds. */
const RENEW = defineScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`)

/** A recorded answer. */
export interface RecordedAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
}

/** The outcome of starting a request; `form` is the stored digest of its form. */
export type Beginning = { readonly form: string | undefined } & (
  | { readonly state: 'running' | 'other' }
  | {
      readonly state: 'mine'
      readonly startedAtMs: number
      /** Jobs by their number in the request, when its process died. */
      readonly jobs: ReadonlyMap<number, StoredJob>
    }
  | { readonly state: 'done'; readonly answer: RecordedAnswer }
)

/** The lease of one request on a key. */
export interface Claim {
  /** Names the record; the key itself is not stored. */
  readonly id: string
  readonly organizationId: string
  readonly fingerprint: string
  readonly owner: string
  /** Encrypts the answer, which may hold a secret; only the key decrypts it. */
  readonly cipherKey: Buffer
}

/** A lease of one request on a key of an organization, for callers of equal rights. */
export function claimOf(
  caller: Pick<Caller, 'organizationId' | 'role' | 'scopes' | 'modelIds'>,
  key: string,
  fingerprint: string,
): Claim {
  const { organizationId } = caller
  const owner = `${organizationId}${rightsOf(caller)}`
  const hash = (purpose: string): Buffer =>
    createHash('sha256').update(`${purpose}\n${owner}\n${key}`).digest()
  return {
    organizationId,
    fingerprint,
    owner: randomUUID(),
    id: hash('id').toString('hex'),
    cipherKey: hash('answer'),
  }
}

// An answer may hold a secret, so it is replayed only to callers with the rights of its first one.
// Empty for keys without restrictions, as in records of older versions.
function rightsOf({ role, scopes, modelIds }: Parameters<typeof claimOf>[0]): string {
  const rights = [role ?? null, scopes?.toSorted() ?? null, modelIds?.toSorted() ?? null]
  return rights.every((right) => right === null) ? '' : `\n${JSON.stringify(rights)}`
}

/** The requests of each idempotency key, for a day. */
export interface IdempotencyStore {
  begin(claim: Claim): Promise<Beginning>
  renew(claim: Claim): Promise<void>
  /** Whether the digest of a form is the stored one. */
  isForm(stored: string, form: string | undefined): boolean
  /**
   * Stores a job for the process that adopts the request when this one dies; false without the
   * lease.
   */
  keepJob(
    claim: Claim,
    number: number,
    kept: { job: StoredJob; form: string | undefined },
  ): Promise<boolean>
  /**
   * Records the answer for the rest of the day, with the digest of the form if there was one. False
   * if another process has adopted the request, like the method below.
   */
  finish(claim: Claim, answer: RecordedAnswer, form: string | undefined): Promise<boolean>
  /** Releases the key for the next request. */
  discard(claim: Claim): Promise<boolean>
}

/** How often a lease must be renewed. */
export const RENEW_INTERVAL_MS = LEASE_MS / 3

/**
 * Opens the record of keys in Redis; `prefix` names the installation, and answers of a day have at
 * most `bytesMax` bytes together. Records are encrypted with the client's Idempotency-Key and,
 * because that may be guessed, with the installation's key too.
 */
export function openIdempotencyStore(
  redis: Redis,
  prefix: string,
  bytesMax: number,
  cipher?: ContentCipher,
): IdempotencyStore {
  const { encrypt, decrypt } = cipherOfClaims(cipher)
  // Without a cipher all content is stored in clear text; digests of earlier releases use no key.
  const keyed = (digest: string): readonly string[] => [
    ...(cipher?.keyedDigests(digest) ?? []),
    digest,
  ]
  const keyedForm = (form: string | undefined): string =>
    form === undefined ? '' : (keyed(form)[0] ?? '')
  const recordOf = ({ id }: Claim): string => `${prefix}:idempotency:${id}`
  const leaseOf = (claim: Claim): string => `${recordOf(claim)}:lease`
  const keysOf = (claim: Claim): string[] => [
    recordOf(claim),
    leaseOf(claim),
    `${recordOf(claim)}:jobs`,
  ]
  const end = async (claim: Claim, answer: string, form?: string): Promise<boolean> => {
    const all = `${prefix}:idempotency:bytes`
    const keys = [...keysOf(claim), `${all}:${claim.organizationId}`, all]
    const ownMax = Math.floor(bytesMax * ORGANIZATION_SHARE)
    const args = [claim.owner, answer, ownMax, bytesMax, KEPT_MS, keyedForm(form)]
    return (await runScript(redis, END, keys, args)) === 1
  }
  return {
    async begin(claim) {
      const args = [claim.owner, KEPT_MS, LEASE_MS, ...keyed(claim.fingerprint)]
      const found = (await runScript(redis, BEGIN, keysOf(claim), args)) as [
        ...[Beginning['state'], string, string?, string[]?],
      ]
      const [state, digest, text = '', jobs = []] = found
      const form = digest === '' ? undefined : digest
      if (state === 'done') return { state, form, answer: openAnswer(decrypt(text, claim)) }
      if (state !== 'mine') return { state, form }
      return {
        state,
        form,
        startedAtMs: Number(text),
        jobs: openJobs(jobs, (text) => decrypt(text, claim)),
      }
    },
    async keepJob(claim, number, { job, form }) {
      const sealed = encrypt(Buffer.from(JSON.stringify(job)), claim)
      const args = [claim.owner, keyedForm(form), number, sealed, KEPT_MS]
      return (await runScript(redis, KEEP, keysOf(claim), args)) === 1
    },
    isForm: (stored, form) => form !== undefined && keyed(form).includes(stored),
    async renew(claim) {
      await runScript(redis, RENEW, [leaseOf(claim)], [claim.owner, LEASE_MS])
    },
    async finish(claim, { body, ...head }, form) {
      const bytes = Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), body])
      return end(claim, encrypt(bytes, claim), form)
    },
    discard: (claim) => end(claim, ''),
  }
}

/** Encrypts with the client's key and, where there is one, with that of the installation. */
function cipherOfClaims(cipher: ContentCipher | undefined) {
  return {
    encrypt(bytes: Buffer, claim: Claim): string {
      const message = seal(bytes, claim.cipherKey)
      if (cipher === undefined) return message.toString('base64')
      return `${OUTER}${cipher.encrypt(message, contextOf(claim)).toString('base64')}`
    },
    decrypt(text: string, claim: Claim): Buffer {
      if (!text.startsWith(OUTER)) return unseal(Buffer.from(text, 'base64'), claim.cipherKey)
      const outer = Buffer.from(text.slice(OUTER.length), 'base64')
      return unseal(readContent(outer, cipher, contextOf(claim)), claim.cipherKey)
    },
  }
}

const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16
/**
 * The prefix of content that the installation's key encrypts as well; base64 never begins with it.
 */
const OUTER = 'e:'

function contextOf({ id }: Claim): string {
  return `idempotency ${id}`
}

function seal(bytes: Buffer, key: Buffer): Buffer {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(CIPHER, key, nonce)
  const sealed = [cipher.update(bytes), cipher.final()]
  return Buffer.concat([nonce, ...sealed, cipher.getAuthTag()])
}

function unseal(bytes: Buffer, key: Buffer): Buffer {
  const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES))
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
  const plain = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES))
  return Buffer.concat([plain, decipher.final()])
}

function openAnswer(plain: Buffer): RecordedAnswer {
  const end = plain.indexOf('\n')
  return { ...JSON.parse(plain.toString('utf8', 0, end)), body: plain.subarray(end + 1) }
}

function openJobs(
  fields: readonly string[],
  decrypt: (text: string) => Buffer,
): ReadonlyMap<number, StoredJob> {
  const jobs = new Map<number, StoredJob>()
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const job = JSON.parse(decrypt(fields[i + 1] as string).toString('utf8'))
    jobs.set(Number(fields[i]), job)
  }
  return jobs
}
