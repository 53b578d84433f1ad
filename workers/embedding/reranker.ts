import { failure } from '#shared/errors.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import { contentOnly } from '#workers/text/content-spans.ts'
import { createTokenizer, type Tokenizer } from '#workers/text/tokenizer.ts'

import { buildBatch, checkInputs, type EncodedText, toFloat32 } from './encoder-batch.ts'
import { type EncoderFiles, readEncoderFiles } from './encoder-files.ts'
import { findPairMarkers } from './markers.ts'
import { type BatchOptions, openTextBatcher } from './text-batcher.ts'

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

// A query may fill no more than this share of the context, or nothing of the document would be
// read.
const QUERY_SHARE = 0.5
// Longer texts cannot fit: no token of these vocabularies is longer than this.
const CHARS_PER_TOKEN_MAX = 32

/** Options of a reranker. */
interface RerankerOptions extends BatchOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly maxContextTokens?: number
  readonly session?: SessionOptions
}

/** Loads a `…ForSequenceClassification` export with one label. Throws `ModelLoadError`. */
export async function openReranker(options: RerankerOptions): Promise<Reranker> {
  const { runtime } = options
  const files = await readEncoderFiles(options.folder, options.onnxFile)
  const sessions = await openSessionPool(runtime, files.modelFile, options.session ?? {})
  return closeOnFailure(sessions, () => assemble(options, files, sessions))
}

async function assemble(
  options: RerankerOptions,
  files: EncoderFiles,
  sessions: SessionPool,
): Promise<Reranker> {
  const { runtime } = options
  checkInputs(sessions.wide)
  checkLabels(sessions.wide, files)
  const batcher = await openTextBatcher<number>(sessions, options, (session, pairs) =>
    runBatch(runtime, session, pairs, files),
  )
  const tokenizer = createTokenizer(files.tokenizerJson, files.tokenizerConfig)
  const contextLength = Math.min(
    files.contextLength,
    options.maxContextTokens ?? files.contextLength,
  )
  const encodePair = createPairEncoder(tokenizer, contextLength)
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

/** One logit per pair is its relevance; the meaning of several logits is not defined. */
function checkLabels({ file, outputs }: ModelSession, { labelCount }: EncoderFiles): void {
  const logits = outputs.find(({ name }) => name === 'logits')
  if (logits === undefined || (logits.type !== 'float32' && logits.type !== 'float16')) {
    throw new ModelLoadError(file, 'not a cross-encoder: it needs an output logits')
  }
  const width = logits.dims.length === 1 ? 1 : logits.dims.at(-1)
  const labels = typeof width === 'number' ? width : labelCount
  if (logits.dims.length <= 2 && labels === 1) return
  throw new ModelLoadError(file, `a cross-encoder must have one label, not ${labels ?? 'several'}`)
}

/** Builds pairs with the markers of the model. */
function createPairEncoder(tokenizer: Tokenizer, contextLength: number): Reranker['encodePair'] {
  const { before, between, after, types } = findPairMarkers(tokenizer)
  const room = contextLength - before.length - between.length - after.length
  const encode = (whole: string) => {
    const { text, content } = contentOnly(whole.slice(0, contextLength * CHARS_PER_TOKEN_MAX))
    return tokenizer.encode(text, { addSpecialTokens: false, content })
  }
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
    const typeIds = [...first.map(() => types[0]), ...second.map(() => types[1])]
    return { tokenIds: [...first, ...second], typeIds }
  }
}

async function runBatch(
  runtime: Runtime,
  session: ModelSession,
  pairs: readonly EncodedText[],
  files: EncoderFiles,
): Promise<readonly number[]> {
  const batch = buildBatch(runtime, session, pairs, files)
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
