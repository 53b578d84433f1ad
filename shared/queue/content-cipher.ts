import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto'

import type { JobEnvelope } from '#shared/contracts/job.ts'

const CIPHER = 'aes-256-gcm'
const FORMAT = 1
const KEY_BYTES = 32
const KEY_ID_BYTES = 4
const SALT_BYTES = 16
const COUNTER_BYTES = 6
const NONCE_BYTES = 12
const TAG_BYTES = 16
const SALT_AT = 1 + KEY_ID_BYTES
const COUNTER_AT = SALT_AT + SALT_BYTES
const BODY_AT = COUNTER_AT + COUNTER_BYTES
/** Keys of other processes that are remembered; each process start makes a new one. */
const READ_KEYS_MAX = 1000

/** One secret of the installation; its id names the key that encrypted a message. */
interface InstallationKey {
  readonly id: Buffer
  readonly secret: string
  readonly digestKey: KeyObject
}

/**
 * Encrypts request content in Redis (job inputs, replies, recorded answers, journals) and stored
 * content in Postgres.
 *
 * A process derives its own message key from the first secret and a random salt (HKDF), so that a
 * counter is a safe AES-GCM nonce that never repeats. A message is `format, key id, salt, counter,
 * ciphertext, tag`. All secrets decrypt, which allows rotation. The context (the job or stream) is
 * authenticated, so a message cannot be moved elsewhere.
 */
export class ContentCipher {
  readonly #keys: readonly InstallationKey[]
  readonly #header: Buffer
  readonly #writeKey: KeyObject
  readonly #readKeys = new Map<string, KeyObject>()
  #counter = 0

  constructor(secrets: readonly string[]) {
    this.#keys = secrets.map((secret) => ({
      id: idOf(secret),
      secret,
      digestKey: derivedKey(secret, '', 'millrace digests'),
    }))
    const [first] = this.#keys
    if (first === undefined) throw new Error('a cipher needs at least one secret')
    const salt = randomBytes(SALT_BYTES)
    this.#header = Buffer.concat([Buffer.from([FORMAT]), first.id, salt])
    this.#writeKey = messageKey(first.secret, salt)
  }

  encrypt(plain: string | Buffer, context: string): Buffer {
    this.#counter += 1
    const counter = Buffer.alloc(COUNTER_BYTES)
    counter.writeUIntBE(this.#counter, 0, COUNTER_BYTES)
    const cipher = createCipheriv(CIPHER, this.#writeKey, nonceOf(counter))
    cipher.setAAD(Buffer.from(context))
    const body = cipher.update(typeof plain === 'string' ? Buffer.from(plain) : plain)
    return Buffer.concat([this.#header, counter, body, cipher.final(), cipher.getAuthTag()])
  }

  /** Throws when no secret fits, the message was changed, or it belongs to another context. */
  decrypt(message: Buffer, context: string): Buffer {
    if (!isEncrypted(message)) throw new Error('the content is not encrypted')
    const key = this.#readKey(message.subarray(1, SALT_AT), message.subarray(SALT_AT, COUNTER_AT))
    const nonce = nonceOf(message.subarray(COUNTER_AT, BODY_AT))
    const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
    decipher.setAAD(Buffer.from(context))
    decipher.setAuthTag(message.subarray(-TAG_BYTES))
    const plain = decipher.update(message.subarray(BODY_AT, -TAG_BYTES))
    return Buffer.concat([plain, decipher.final()])
  }

  /**
   * Digests that only the installation can compute, so that short content cannot be found by
   * guessing. One digest per secret; writers use the first.
   */
  keyedDigests(content: string): readonly string[] {
    return this.#keys.map(({ digestKey }) =>
      createHmac('sha256', digestKey).update(content).digest('hex'),
    )
  }

  #readKey(id: Buffer, salt: Buffer): KeyObject {
    const name = Buffer.concat([id, salt]).toString('latin1')
    const known = this.#readKeys.get(name)
    if (known !== undefined) return known
    const found = this.#keys.find((key) => key.id.equals(id))
    if (found === undefined) {
      throw new Error('the content was encrypted with a key that MILLRACE_ENCRYPTION_KEY lacks')
    }
    const key = messageKey(found.secret, salt)
    if (this.#readKeys.size >= READ_KEYS_MAX) this.#readKeys.clear()
    this.#readKeys.set(name, key)
    return key
  }
}

/**
 * The cipher of an installation; undefined without a secret, in which case content is not
 * encrypted.
 */
export function openContentCipher(secrets: readonly string[]): ContentCipher | undefined {
  return secrets.length === 0 ? undefined : new ContentCipher(secrets)
}

/**
 * Whether bytes are an encrypted message. Clear content is JSON and never begins with this byte.
 */
function isEncrypted(bytes: Buffer): boolean {
  return bytes[0] === FORMAT && bytes.length >= BODY_AT + TAG_BYTES
}

/** Reads content that is encrypted or, if an earlier release wrote it, clear. */
export function readContent(
  bytes: Buffer,
  cipher: ContentCipher | undefined,
  context: string,
): Buffer {
  if (!isEncrypted(bytes)) return bytes
  if (cipher === undefined) {
    throw new Error('the content is encrypted: set MILLRACE_ENCRYPTION_KEY as in the other tier')
  }
  return cipher.decrypt(bytes, context)
}

function idOf(secret: string): Buffer {
  return createHash('sha256')
    .update(`millrace key id\n${secret}`)
    .digest()
    .subarray(0, KEY_ID_BYTES)
}

function messageKey(secret: string, salt: Buffer): KeyObject {
  return derivedKey(secret, salt, 'millrace content in redis')
}

/** A key as an object: Node takes four times as long to encrypt a token with its bytes. */
function derivedKey(secret: string, salt: string | Buffer, purpose: string): KeyObject {
  return createSecretKey(Buffer.from(hkdfSync('sha256', secret, salt, purpose, KEY_BYTES)))
}

function nonceOf(counter: Buffer): Buffer {
  return Buffer.concat([Buffer.alloc(NONCE_BYTES - COUNTER_BYTES), counter])
}

/**
 * The version of an envelope with an encrypted input. Workers of releases that cannot decrypt
 * refuse it, and the owner submits the job again; upgrade workers first.
 */
export const ENCRYPTED_ENVELOPE_VERSION = 2

/**
 * An envelope as stored in the queue. `input` is base64 of the encrypted JSON, because BullMQ
 * stores text.
 */
type WireEnvelope =
  | JobEnvelope
  | (Omit<JobEnvelope, 'version' | 'input'> & {
      readonly version: typeof ENCRYPTED_ENVELOPE_VERSION
      readonly input: string
    })

/**
 * Encrypts the input of an envelope. `json` is the serialized input, if the caller has it. Without
 * a cipher the envelope is unchanged.
 */
export function encryptEnvelope(
  envelope: JobEnvelope,
  cipher: ContentCipher | undefined,
  json?: string,
): WireEnvelope {
  if (cipher === undefined) return envelope
  const message = cipher.encrypt(json ?? JSON.stringify(envelope.input), contextOf(envelope))
  return {
    ...envelope,
    version: ENCRYPTED_ENVELOPE_VERSION,
    input: message.toString('base64'),
  }
}

/** The input of an encrypted envelope. Throws when this process lacks the key. */
export function decryptInput(
  { jobId, input }: { readonly jobId: string; readonly input: string },
  cipher: ContentCipher | undefined,
): unknown {
  const message = Buffer.from(input, 'base64')
  return JSON.parse(readContent(message, cipher, contextOf({ jobId })).toString('utf8'))
}

/** The associated data that binds the encrypted input to its job. */
export function contextOf({ jobId }: { readonly jobId: string }): string {
  return `input of ${jobId}`
}
