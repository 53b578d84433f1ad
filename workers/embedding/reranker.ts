import { failure } from '#shared/errors.ts'
import { openLanes } from '#workers/runtime/lanes.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import { createTokenizer, type Tokenizer } from '#workers/text/tokenizer.ts'

import { Batcher } from './batcher.ts'
import { buildBatch, toFloat32, type EncodedText } from './encoder-batch.ts'
import { readEncoderFiles } from './encoder-files.ts'
import { findMarkers } from './markers.ts'

/** A loaded cross-encoder: it reads a query and a document together. */
export interface Reranker {
  readonly contextLength: number
  /** A pair with the model's own markers; a long document is cut, as these models are used. */
  encodePair(query: string, document: string): EncodedText
  /** The relevance of a pair, from 0 to 1. */
  score(pair: EncodedText, signal: AbortSignal): Promise<number>
  readonly waitingCount: number
  close(): Promise<void>
}

const MAX_BATCH_TOKENS = 4096
const MAX_BATCH_SIZE = 64
// A query may fill no more than this share of the context, or nothing of the document would be read.
const QUERY_SHARE = 0.5
// Longer texts cannot fit: no token of these vocabularies is longer than this.
const CHARS_PER_TOKEN_MAX = 32

/** Loads a `…ForSequenceClassification` export with one label. */
export async function openReranker(options: {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly maxContextTokens?: number
  readonly maxBatchTokens?: number
  readonly session?: SessionOptions
  /** Told the size of every batch. */
  readonly onBatch?: (size: number) => void
}): Promise<Reranker> {
  const { runtime } = options
  const files = await readEncoderFiles(options.folder, options.onnxFile)
  const sessions = await openLanes(runtime, files.modelFile, options.session ?? {})
  const { lanes, sharedBatchTokens } = sessions
  const tokenizer = createTokenizer(files.tokenizerJson, files.tokenizerConfig)
  const contextLength = Math.min(
    files.contextLength,
    options.maxContextTokens ?? files.contextLength,
  )
  const encodePair = createPairEncoder(tokenizer, contextLength)
  const batcher = new Batcher<EncodedText, number>({
    maxBatchTokens: options.maxBatchTokens ?? MAX_BATCH_TOKENS,
    maxBatchSize: MAX_BATCH_SIZE,
    onBatch: options.onBatch,
    ...{ lanes, sharedBatchTokens: options.maxBatchTokens ?? sharedBatchTokens },
    lengthOf: ({ tokenIds }) => tokenIds.length,
    run: (pairs, isAlone) => runBatch(runtime, sessions.choose(isAlone), pairs, files.paddingId),
  })
  return {
    contextLength,
    encodePair,
    score: (pair, signal) => batcher.submit(pair, signal),
    get waitingCount() {
      return batcher.waitingCount
    },
    close: () => sessions.close(),
  }
}

/**
 * Builds pairs with the markers of the model, as
 * `[CLS] query [SEP] document [SEP]` (BERT) or `<s> query </s></s> document </s>` (RoBERTa).
 */
function createPairEncoder(tokenizer: Tokenizer, contextLength: number): Reranker['encodePair'] {
  const { before, after } = findMarkers(tokenizer)
  const isRoberta = tokenizer.findTokenId('</s>') === after[0]
  const between = isRoberta ? [...after, ...after] : after
  const room = contextLength - before.length - between.length - after.length
  const encode = (text: string) =>
    tokenizer.encode(text.slice(0, contextLength * CHARS_PER_TOKEN_MAX), {
      addSpecialTokens: false,
    })
  return (query, document) => {
    const queryIds = encode(query)
    if (queryIds.length > room * QUERY_SHARE) {
      throw failure.invalidRequest(
        `The query has ${queryIds.length} tokens; this model reads at most ${Math.floor(room * QUERY_SHARE)}.`,
        { param: 'query', code: 'context_length_exceeded' },
      )
    }
    const documentIds = encode(document).slice(0, room - queryIds.length)
    const first = [...before, ...queryIds, ...between]
    const second = [...documentIds, ...after]
    // RoBERTa knows no types.
    const typeIds = [...first.map(() => 0), ...second.map(() => (isRoberta ? 0 : 1))]
    return { tokenIds: [...first, ...second], typeIds }
  }
}

async function runBatch(
  runtime: Runtime,
  session: ModelSession,
  pairs: readonly EncodedText[],
  paddingId: number,
): Promise<readonly number[]> {
  const batch = buildBatch(runtime, session, pairs, paddingId)
  try {
    const { logits } = await session.run(batch.feeds, { logits: null })
    try {
      return Array.from(toFloat32(logits), sigmoid)
    } finally {
      logits.dispose()
    }
  } finally {
    batch.dispose()
  }
}

function sigmoid(logit: number): number {
  return 1 / (1 + Math.exp(-logit))
}
