import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'

import type { Files } from '#api/files/file-store.ts'
import type { BatchRow } from '#shared/db/schema/batches.ts'
import { randomId } from '#shared/ids.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { lineIdOf } from './batch.ts'
import type { BatchEnd, BatchLines, FinishedLine } from './line-store.ts'

export interface FinalizeServices {
  readonly lines: BatchLines
  /** Receive the output of batches. */
  readonly files: Pick<Files, 'publish' | 'find'>
  readonly store: ObjectStore
  /** Receives the end of a batch; may be called several times for the same end. */
  readonly announce?: (batch: BatchRow, end: BatchEnd['status'] | 'failed') => Promise<void>
}

/**
 * Writes the output file (successes) and the error file (failures and lines that did not run), and
 * ends the batch. Their ids are derived from the batch, so that a second attempt after a crash
 * finds the files of the first.
 */
export async function finalize(
  batch: BatchRow,
  leaseId: string,
  services: FinalizeServices,
): Promise<void> {
  const { good, bad, unrun } = await services.lines.countOutcomes(batch.id)
  const status = endOf(batch, unrun)
  const outputFileId = good > 0 ? await writeFile(batch, { isGood: true, status }, services) : null
  const errorFileId = bad > 0 ? await writeFile(batch, { isGood: false, status }, services) : null
  await services.announce?.(batch, status)
  await services.lines.close(batch.id, leaseId, { status, outputFileId, errorFileId })
}

function endOf(batch: BatchRow, unrun: number): BatchEnd['status'] {
  if (batch.cancellingAt !== null) return 'cancelled'
  return batch.inProgressAt === null || unrun > 0 ? 'expired' : 'completed'
}

const PIECE_BYTES = 1024 * 1024 // a millisecond of hashing

async function writeFile(
  batch: BatchRow,
  { isGood, status }: { readonly isGood: boolean; readonly status: BatchEnd['status'] },
  { lines, files, store }: FinalizeServices,
): Promise<string> {
  const { organizationId } = batch
  const id = `file-${batch.id.replace(/^batch_/, '')}${isGood ? 'out' : 'err'}`
  if ((await files.find(organizationId, id)) !== undefined) return id
  // Not derived from the id: a delayed process must not overwrite a published file.
  const objectKey = `files/${randomId('file-')}`
  const hash = createHash('sha256')
  async function* rows(): AsyncGenerator<Buffer> {
    for await (const line of lines.read(batch.id, isGood)) {
      const bytes = Buffer.from(`${presentLine(batch.id, line, status)}\n`)
      for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
        const piece = bytes.subarray(at, at + PIECE_BYTES)
        hash.update(piece)
        yield piece
      }
    }
  }
  const { bytes } = await store.put(objectKey, Readable.from(rows(), { objectMode: false }))
  const filename = `${batch.id}_${isGood ? 'output' : 'error'}.jsonl`
  const { outputRetentionSeconds: retentionSeconds } = batch
  const file = {
    id,
    organizationId,
    objectKey,
    filename,
    purpose: 'batch_output',
    bytes,
    ...(retentionSeconds !== null && { retentionSeconds }),
  }
  try {
    // Computed answers are stored even when the organization's quota is used up.
    await files.publish({ ...file, sha256: hash.digest() }, Number.MAX_SAFE_INTEGER)
  } catch (error) {
    await store.delete(objectKey)
    if ((await files.find(organizationId, id)) === undefined) throw error
  }
  return id
}

const UNRUN = {
  completed: 'This request was not run.',
  expired: 'This request could not be executed before the completion window expired.',
  cancelled: 'This request was not executed because the batch was cancelled.',
}

function presentLine(batchId: string, line: FinishedLine, status: BatchEnd['status']): string {
  const id = JSON.stringify(lineIdOf(batchId, line.line))
  const customId = JSON.stringify(line.customId)
  const head = `{"id":${id},"custom_id":${customId}`
  if (line.answer === null) {
    const error = JSON.stringify({ code: `batch_${status}`, message: UNRUN[status] })
    return `${head},"response":null,"error":${error}}`
  }
  const about = `"status_code":${line.statusCode},"request_id":${JSON.stringify(line.requestId)}`
  return `${head},"response":{${about},"body":${line.answer}},"error":null}`
}
