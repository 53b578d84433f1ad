import { openLanes } from '#workers/runtime/lanes.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

import { Batcher } from './batcher.ts'
import { buildBatch, toFloat32, type EncodedText } from './encoder-batch.ts'
import { readEncoderFiles, type EncoderFiles } from './encoder-files.ts'
import { findMarkers } from './markers.ts'
import { normalize, pool } from './pooling.ts'
import { readText, readTextCut, readTokenIds } from './read-input.ts'

/** A loaded embedding model; texts of all requests share its batches. */
export interface Encoder {
  readonly contextLength: number
  readonly dimensions: number | undefined
  readonly isTruncatable: boolean
  /**
   * Tokens of a text with the model's own markers, cut to so many if a number is given. Throws
   * `context_length_exceeded` if none is.
   */
  encodeText(text: string, tokensMax?: number): Promise<readonly number[]>
  /** Checks ids of the model's own vocabulary; cut likewise. Throws `invalidRequest`. */
  checkTokenIds(tokenIds: readonly number[], tokensMax?: number): readonly number[]
  /** The vector of one text, float32, normalized where the model's files say so. */
  embed(tokenIds: readonly number[], signal: AbortSignal): Promise<Float32Array>
  readonly waitingCount: number
  close(): Promise<void>
}

export interface EncoderOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly maxContextTokens?: number
  readonly maxBatchTokens?: number
  readonly session?: SessionOptions
  /** Batches that may run side by side on parts of the cores; usually left to the encoder. */
  readonly lanes?: number
  /** Told the size of every batch. */
  readonly onBatch?: (size: number) => void
}

// About the size from which a larger batch gains nothing on processors.
const MAX_BATCH_TOKENS = 4096
const MAX_BATCH_SIZE = 64
// Token vectors to be pooled, or a vector that the graph has pooled already.
const TOKEN_OUTPUTS = ['last_hidden_state', 'token_embeddings', 'hidden_states']
const TEXT_OUTPUTS = ['sentence_embedding', 'sentence_embeddings', 'text_embeds', 'pooler_output']

/** Loads an encoder in the hub layout (BERT, MiniLM, BGE, E5, GTE, Nomic families). */
export async function openEncoder(options: EncoderOptions): Promise<Encoder> {
  const { runtime } = options
  const files = await readEncoderFiles(options.folder, options.onnxFile)
  const { lanes: lanesWanted } = options
  const sessions = await openLanes(runtime, files.modelFile, {
    ...options.session,
    lanes: lanesWanted,
  })
  const tokenizer = createTokenizer(files.tokenizerJson, files.tokenizerConfig)
  const contextLength = Math.min(
    files.contextLength,
    options.maxContextTokens ?? files.contextLength,
  )
  const reader = { tokenizer, markers: findMarkers(tokenizer), contextLength }
  const output = chooseOutput(sessions.wide)
  const { lanes, sharedBatchTokens } = sessions
  const batcher = new Batcher<EncodedText, Float32Array>({
    maxBatchTokens: options.maxBatchTokens ?? MAX_BATCH_TOKENS,
    maxBatchSize: MAX_BATCH_SIZE,
    onBatch: options.onBatch,
    ...{ lanes, sharedBatchTokens: options.maxBatchTokens ?? sharedBatchTokens },
    lengthOf: ({ tokenIds }) => tokenIds.length,
    run: (texts, isAlone) =>
      runBatch({ runtime, session: sessions.choose(isAlone), files, output }, texts),
  })
  const width = output.spec.dims.at(-1)
  return {
    contextLength,
    dimensions: typeof width === 'number' ? width : undefined,
    isTruncatable: files.isTruncatable,
    encodeText: (text, tokensMax) =>
      tokensMax === undefined ? readText(reader, text) : readTextCut(reader, text, tokensMax),
    checkTokenIds: (tokenIds, tokensMax) => readTokenIds(reader, tokenIds, tokensMax),
    embed: (tokenIds, signal) => batcher.submit({ tokenIds }, signal),
    get waitingCount() {
      return batcher.waitingCount
    },
    close: () => sessions.close(),
  }
}

interface Output {
  readonly spec: ModelSession['outputs'][number]
  readonly isPooled: boolean
}

function chooseOutput(session: ModelSession): Output {
  const find = (names: readonly string[]) =>
    names.flatMap((name) => session.outputs.filter((spec) => spec.name === name))[0]
  const tokens = find(TOKEN_OUTPUTS)
  if (tokens !== undefined) return { spec: tokens, isPooled: false }
  const pooled = find(TEXT_OUTPUTS) ?? session.outputs[0]
  if (pooled === undefined) throw new Error(`${session.file}: the model has no output`)
  return { spec: pooled, isPooled: pooled.dims.length === 2 }
}

async function runBatch(
  model: { runtime: Runtime; session: ModelSession; files: EncoderFiles; output: Output },
  texts: readonly EncodedText[],
): Promise<readonly Float32Array[]> {
  const { runtime, session, files, output } = model
  const batch = buildBatch(runtime, session, texts, files.paddingId)
  const { name } = output.spec
  try {
    const fetched = await session.run(batch.feeds, { [name]: null })
    const tensor = fetched[name] as (typeof fetched)[string]
    try {
      const data = toFloat32(tensor)
      const dimensions = tensor.dims.at(-1) as number
      const vectors = texts.map((_text, row) =>
        output.isPooled
          ? data.slice(row * dimensions, (row + 1) * dimensions)
          : pool(files.pooling, { data, width: batch.width, dimensions, mask: batch.mask }, row),
      )
      return files.isNormalized ? vectors.map(normalize) : vectors
    } finally {
      tensor.dispose()
    }
  } finally {
    batch.dispose()
  }
}
