import { readOperators } from '#workers/graph/operators.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionPool } from '#workers/runtime/session-pool.ts'

import { Batcher } from './batcher.ts'
import { type EncodedText, statedShapeOf } from './encoder-batch.ts'

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
  const takesOne = marks.hasDynamicQuantization || statedShapeOf(sessions.wide).rows === 1
  const mixesLengths =
    canMixLengths && !marks.hasQuantizedMask && !(await readsPadding(sessions.wide, takesOne, run))
  const { poolSize, sharedBatchTokens } = sessions
  const endsOf = ({ tokenIds }: EncodedText): number =>
    endId === undefined ? 0 : tokenIds.filter((id) => id === endId).length
  return new Batcher<EncodedText, Result>({
    maxBatchTokens: maxBatchTokens ?? BATCH_TOKENS_MAX,
    // With one scale for all values of a run, a text would change the results of its neighbours.
    maxBatchSize: takesOne ? 1 : BATCH_SIZE_MAX,
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

// Texts of few tokens that every vocabulary has.
const SHORT: EncodedText = { tokenIds: [5, 6, 7] }
const LONG: EncodedText = { tokenIds: [8, 7, 6, 5, 9, 6, 8, 5, 7] }
// Half precision changes less, and so do convolutions that read a few positions of padding.
const CHANGE_MAX = 5e-3

/**
 * Whether a text has another result beside a longer one, as in graphs that ignore their mask
 * (Fourier transforms). Only vectors are compared.
 */
async function readsPadding<Result>(
  session: ModelSession,
  takesOne: boolean,
  run: (session: ModelSession, texts: readonly EncodedText[]) => Promise<readonly Result[]>,
): Promise<boolean> {
  if (takesOne) return false
  try {
    const [alone] = await run(session, [SHORT])
    const [beside] = await run(session, [SHORT, LONG])
    if (!(alone instanceof Float32Array && beside instanceof Float32Array)) return false
    const length = Math.hypot(...alone)
    return alone.some((value, at) => Math.abs(value - (beside[at] ?? 0)) > CHANGE_MAX * length)
  } catch {
    // A graph that needs more than these tokens, such as the end of a text.
    return false
  }
}
