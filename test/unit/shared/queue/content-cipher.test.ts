import { describe, expect, it } from 'vitest'

import { ENVELOPE_VERSION, type JobEnvelope } from '#shared/contracts/job.ts'
import {
  ContentCipher,
  encryptEnvelope,
  openContentCipher,
  readContent,
} from '#shared/queue/content-cipher.ts'
import { parseEnvelope } from '#workers/server/job-claims.ts'

const OLD = 'an old key of thirty-two characters'
const NEW = 'a new key of thirty-two characters!'
const CANARY = 'a confidential prompt of one client'

describe('the content cipher', () => {
  it('decrypts in another process with the same key', () => {
    const message = new ContentCipher([NEW]).encrypt(CANARY, 'here')
    expect(message.includes(CANARY)).toBe(false)
    expect(new ContentCipher([NEW]).decrypt(message, 'here').toString()).toBe(CANARY)
  })

  it('encrypts the same text differently every time', () => {
    const cipher = new ContentCipher([NEW])
    const messages = [cipher, cipher, new ContentCipher([NEW])].map((own) =>
      own.encrypt(CANARY, 'here').toString('hex'),
    )
    expect(new Set(messages).size).toBe(3)
  })

  it('decrypts with every key of a rotation and encrypts with the first', () => {
    const rotated = new ContentCipher([NEW, OLD])
    const before = new ContentCipher([OLD]).encrypt(CANARY, 'here')
    expect(rotated.decrypt(before, 'here').toString()).toBe(CANARY)
    const after = rotated.encrypt(CANARY, 'here')
    expect(() => new ContentCipher([OLD]).decrypt(after, 'here')).toThrow('MILLRACE_ENCRYPTION_KEY')
    expect(new ContentCipher([NEW]).decrypt(after, 'here').toString()).toBe(CANARY)
  })

  it('refuses a message that was moved, changed or cut off', () => {
    const cipher = new ContentCipher([NEW])
    const message = cipher.encrypt(CANARY, 'here')
    expect(() => cipher.decrypt(message, 'there')).toThrow()
    for (let at = 0; at < message.length; at += 1) {
      const changed = Buffer.from(message)
      changed[at] = (changed[at] as number) ^ 1
      expect(() => cipher.decrypt(changed, 'here'), `byte ${at}`).toThrow()
      expect(() => cipher.decrypt(message.subarray(0, at), 'here'), `cut at ${at}`).toThrow()
    }
  })

  it('keeps content in clear text without a key, and reports the missing key if it is encrypted', () => {
    expect(openContentCipher([])).toBeUndefined()
    expect(readContent(Buffer.from('{}'), undefined, 'here').toString()).toBe('{}')
    const message = new ContentCipher([NEW]).encrypt(CANARY, 'here')
    expect(() => readContent(message, undefined, 'here')).toThrow('MILLRACE_ENCRYPTION_KEY')
  })
})

describe('an envelope in the queue', () => {
  const cipher = new ContentCipher([NEW])
  const envelope: JobEnvelope<'embedding'> = {
    version: ENVELOPE_VERSION,
    jobId: 'job_1',
    epoch: 1,
    kind: 'embedding',
    modelId: 'm',
    organizationId: 'org',
    replyTo: 'replies',
    enqueuedAtMs: 1,
    deadlineAtMs: 2,
    input: { task: 'embed', items: [CANARY], role: 'query', dimensions: null },
  }
  const source = { kind: 'embedding', modelId: 'm' } as const

  it('is read by a worker with the key, and reveals no content', () => {
    const wire = JSON.parse(JSON.stringify(encryptEnvelope(envelope, cipher)))
    expect(JSON.stringify(wire)).not.toContain(CANARY)
    expect(parseEnvelope(wire, { ...source, cipher })).toEqual(envelope)
  })

  it('is read in clear text, as earlier releases write it, even by a worker with a key', () => {
    expect(parseEnvelope({ ...envelope }, { ...source, cipher })).toEqual(envelope)
  })

  it('is refused by a worker without the key, and for another job', () => {
    const wire = encryptEnvelope(envelope, cipher)
    expect(() => parseEnvelope(wire, source)).toThrow('MILLRACE_ENCRYPTION_KEY')
    expect(() => parseEnvelope({ ...wire, jobId: 'job_2' }, { ...source, cipher })).toThrow()
  })
})
