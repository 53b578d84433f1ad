import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import { createTokenizer, type Tokenizer } from '#workers/text/tokenizer.ts'

import {
  buildBatch,
  checkInputs,
  contextLengthIn,
  type EncodedText,
  toFloat32,
} from './encoder-batch.ts'
import { type EncoderFiles, readEncoderFiles } from './encoder-files.ts'
import { type BatchOptions, openTextBatcher } from './text-batcher.ts'

/** A loaded `…ForSequenceClassification` export: one logit per label for a text or a pair. */
interface SequenceClassifier {
  readonly files: EncoderFiles
  readonly tokenizer: Tokenizer
  readonly contextLength: number
  readonly labelCount: number
  logits(text: EncodedText, signal: AbortSignal): Promise<Float32Array>
  readonly waitingCount: number
  close(): Promise<void>
}

/** Options of a classifier. */
export interface ClassifierOptions extends BatchOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly maxContextTokens?: number
  readonly session?: SessionOptions
}

/** Loads an export with the output `logits`. Throws `ModelLoadError`. */
export async function openSequenceClassifier(
  options: ClassifierOptions,
): Promise<SequenceClassifier> {
  const { runtime } = options
  const files = await readEncoderFiles(options.folder, options.onnxFile)
  const sessions = await openSessionPool(runtime, files.modelFile, options.session ?? {})
  return closeOnFailure(sessions, () => assemble(options, files, sessions))
}

async function assemble(
  options: ClassifierOptions,
  files: EncoderFiles,
  sessions: SessionPool,
): Promise<SequenceClassifier> {
  const { runtime, maxContextTokens = files.contextLength } = options
  checkInputs(sessions.wide)
  const labelCount = labelCountOf(sessions.wide, files)
  const batcher = await openTextBatcher<Float32Array>(
    sessions,
    { ...options, endId: files.endId },
    (session, texts) => runBatch({ runtime, session, files }, texts),
  )
  return {
    files,
    labelCount,
    tokenizer: createTokenizer(files.tokenizerJson, files.tokenizerConfig),
    contextLength: await contextLengthIn(sessions.wide, files.contextLength, maxContextTokens),
    logits: (text, signal) => batcher.submit(text, signal),
    get waitingCount() {
      return batcher.waitingCount
    },
    close: () => sessions.close(),
  }
}

/** The width of `logits`: from the graph, else from config.json. */
function labelCountOf({ file, outputs }: ModelSession, { labels }: EncoderFiles): number {
  const logits = outputs.find(({ name }) => name === 'logits')
  if (logits === undefined || (logits.type !== 'float32' && logits.type !== 'float16')) {
    throw new ModelLoadError(file, 'not a text classifier: it needs an output logits')
  }
  const width = logits.dims.length === 1 ? 1 : logits.dims.at(-1)
  const count = typeof width === 'number' ? width : labels.length
  if (logits.dims.length <= 2 && count > 0) return count
  throw new ModelLoadError(
    file,
    logits.dims.length === 3
      ? 'its logits belong to tokens, not to texts: models that label tokens are not supported; to rerank with a language model, add modules.json and 1_LogitScore/config.json of sentence-transformers'
      : 'logits must be [batch, labels], with the labels in config.json',
  )
}

async function runBatch(
  {
    runtime,
    session,
    files,
  }: { readonly runtime: Runtime; readonly session: ModelSession; readonly files: EncoderFiles },
  texts: readonly EncodedText[],
): Promise<readonly Float32Array[]> {
  const batch = buildBatch(runtime, session, texts, files)
  try {
    const { logits } = await session.run(batch.feeds, { logits: null })
    try {
      const values = toFloat32(logits)
      const width = values.length / texts.length
      return texts.map((_, row) => values.slice(row * width, (row + 1) * width))
    } finally {
      logits.dispose()
    }
  } finally {
    batch.dispose()
  }
}
