import type { EmbeddingResult } from '#shared/contracts/embedding.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'

import type { JobTools } from './processor-row.ts'

/** A job whose texts are tokenized. */
export interface Prepared {
  readonly promptTokens: number
  /** Request fields without effect on this model. */
  readonly ignored?: readonly string[]
  compute(): Promise<EmbeddingResult>
}

/** Tokenizes the texts, reports their tokens, and replies with the result. */
export async function answerPrepared(
  job: JobEnvelope<'embedding'>,
  { reply, clock }: Pick<JobTools<unknown, 'embedding'>, 'reply' | 'clock'>,
  prepare: () => Promise<Prepared>,
): Promise<void> {
  const begunMs = clock.now()
  const { promptTokens, ignored, compute } = await prepare()
  reply.started(promptTokens, { ...(ignored !== undefined && { ignored }) })
  const preparedMs = clock.now()
  const result = await compute()
  reply.result(
    result,
    { promptTokens, completionTokens: 0, cachedTokens: 0 },
    {
      queueMs: begunMs - job.enqueuedAtMs,
      prepareMs: preparedMs - begunMs,
      runMs: clock.now() - preparedMs,
    },
  )
}

/** The tokens of all texts of a job. */
export function countTokens(texts: readonly (readonly number[])[]): number {
  return texts.reduce((sum, { length }) => sum + length, 0)
}

/** A vector in the format of replies: contiguous, little-endian. */
export function toBase64(vector: Float32Array | Uint32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64')
}
