import { ENVELOPE_VERSION, type JobEnvelope } from '#shared/contracts/job.ts'
import type { QueueKind } from '#shared/contracts/queues.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { decryptInput, ENCRYPTED_ENVELOPE_VERSION } from '#shared/queue/envelope-wire.ts'

/** The queue that a job was fetched from, and what decrypts its input. */
interface Source {
  readonly kind: QueueKind
  readonly modelId: string
  readonly cipher?: ContentCipher | undefined
}

/**
 * Checks a fetched job and decrypts its input; clear inputs come from an API tier of an earlier
 * release or without a key. Throws with the field at fault.
 */
export function parseEnvelope(value: unknown, { kind, modelId, cipher }: Source): JobEnvelope {
  if (typeof value !== 'object' || value === null) throw new Error('the job is no object')
  const record = value as Record<string, unknown>
  const isEncrypted = record.version === ENCRYPTED_ENVELOPE_VERSION
  if (record.version !== ENVELOPE_VERSION && !isEncrypted) {
    throw new Error(
      `version ${String(record.version)} is not ${ENVELOPE_VERSION} or ${ENCRYPTED_ENVELOPE_VERSION}`,
    )
  }
  for (const field of ['jobId', 'organizationId', 'replyTo'] as const) {
    if (typeof record[field] !== 'string' || record[field] === '') {
      throw new Error(`${field} must be a string`)
    }
  }
  for (const field of ['epoch', 'enqueuedAtMs', 'deadlineAtMs'] as const) {
    if (typeof record[field] !== 'number') throw new Error(`${field} must be a number`)
  }
  if (record.kind !== kind) throw new Error(`kind must be ${kind}`)
  if (record.modelId !== modelId) throw new Error(`modelId must be ${modelId}`)
  const input = isEncrypted ? openInput(record, cipher) : record.input
  if (typeof input !== 'object' || input === null) throw new Error('input must be an object')
  return {
    ...(value as JobEnvelope),
    version: ENVELOPE_VERSION,
    input: input as JobEnvelope['input'],
  }
}

function openInput(record: Record<string, unknown>, cipher: ContentCipher | undefined): unknown {
  const { jobId, input } = record
  if (typeof input !== 'string') throw new Error('an encrypted input must be a string')
  return decryptInput({ jobId: String(jobId), input }, cipher)
}
