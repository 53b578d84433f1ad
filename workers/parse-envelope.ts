import { ENVELOPE_VERSION, type JobEnvelope } from '#shared/contracts/job.ts'
import type { QueueKind } from '#shared/contracts/queues.ts'

/** What a worker reads of a job before it trusts it. Throws with the field at fault. */
export function parseEnvelope(value: unknown, kind: QueueKind, modelId: string): JobEnvelope {
  if (typeof value !== 'object' || value === null) throw new Error('the job is no object')
  const record = value as Record<string, unknown>
  if (record.version !== ENVELOPE_VERSION) {
    throw new Error(`version ${String(record.version)} is not ${ENVELOPE_VERSION}`)
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
  if (typeof record.input !== 'object' || record.input === null) {
    throw new Error('input must be an object')
  }
  return value as JobEnvelope
}
