import { readOperators } from '#workers/graph/operators.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionPool } from '#workers/runtime/session-pool.ts'

import { Batcher } from './batcher.ts'
import type { EncodedText } from './encoder-batch.ts'

/** Options of a model's batches. */
export interface BatchOptions {
  readonly maxBatchTokens?: number
  /** Receives the size of every batch. */
  readonly onBatch?: (size: number) => void
}

/** The batches that a graph accepts. */
interface BatchRules extends BatchOptions {
  /** False for graphs without a mask, where shorter texts would include padding. */
  readonly canMixLengths?: boolean
  /**
   * A token that occurs equally often in all texts of a batch: graphs that read the vector of the
   * last one divide all of a batch by the number of texts.
   */
  readonly endId?: number | undefined
}

// Beyond about this size a larger batch gains nothing on processors.
const BATCH_TOKENS_MAX = 4096
const BATCH_SIZE_MAX = 64

/** Batches the texts, or pairs of texts, of a model. */
export async function openTextBatcher<Result>(
  sessions: SessionPool,
  { maxBatchTokens, onBatch, canMixLengths = true, endId }: BatchRules,
  run: (session: ModelSession, texts: readonly EncodedText[]) => Promise<readonly Result[]>,
): Promise<Batcher<EncodedText, Result>> {
  const marks = await readOperators(sessions.wide.file)
  const mixesLengths = canMixLengths && !marks.hasQuantizedMask
  const { poolSize, sharedBatchTokens } = sessions
  const endsOf = ({ tokenIds }: EncodedText): number =>
    endId === undefined ? 0 : tokenIds.filter((id) => id === endId).length
  return new Batcher<EncodedText, Result>({
    maxBatchTokens: maxBatchTokens ?? BATCH_TOKENS_MAX,
    // With one scale for all values of a run, a text would change the results of its neighbours.
    maxBatchSize: marks.hasDynamicQuantization ? 1 : BATCH_SIZE_MAX,
    onBatch,
    poolSize,
    sharedBatchTokens: maxBatchTokens ?? sharedBatchTokens,
    lengthOf: ({ tokenIds }) => tokenIds.length,
    canJoin: (oldest, item) =>
      item.taskId === oldest.taskId &&
      endsOf(item) === endsOf(oldest) &&
      (mixesLengths || item.tokenIds.length === oldest.tokenIds.length),
    run: (texts, isAlone) => run(sessions.choose(isAlone), texts),
  })
}
