import { setImmediate } from 'node:timers/promises'

import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

import { buildBatch, checkInputs, type EncodedText, toFloat32 } from './encoder-batch.ts'
import { type EncoderFiles, readEncoderFiles } from './encoder-files.ts'
import { chooseOutput, type EncoderOutput } from './encoder-output.ts'
import { findMarkers } from './markers.ts'
import { normalize, poolAll } from './pooling.ts'
import { readText, readTextCut, readTokenIds } from './read-input.ts'
import { type BatchOptions, openTextBatcher } from './text-batcher.ts'

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

/** Options of an encoder. */
interface EncoderOptions extends BatchOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly maxContextTokens?: number
  readonly session?: SessionOptions
  /** Batches that may run side by side on parts of the cores; usually left to the encoder. */
  readonly poolSize?: number
}

/** Loads an encoder in the hub layout (BERT, MiniLM, BGE, E5, GTE, Nomic families). */
export async function openEncoder(options: EncoderOptions): Promise<Encoder> {
  const { runtime } = options
  const files = await readEncoderFiles(options.folder, options.onnxFile)
  const { poolSize: poolSizeWanted } = options
  const sessions = await openSessionPool(runtime, files.modelFile, {
    ...options.session,
    poolSize: poolSizeWanted,
  })
  return closeOnFailure(sessions, () => assemble(options, files, sessions))
}

async function assemble(
  options: EncoderOptions,
  files: EncoderFiles,
  sessions: SessionPool,
): Promise<Encoder> {
  const { runtime } = options
  checkInputs(sessions.wide)
  const output = chooseOutput(sessions.wide, files.head)
  const batcher = await openTextBatcher<Float32Array>(sessions, options, (session, texts) =>
    runBatch({ runtime, session, files, output }, texts),
  )
  const tokenizer = createTokenizer(files.tokenizerJson, files.tokenizerConfig)
  const contextLength = Math.min(
    files.contextLength,
    options.maxContextTokens ?? files.contextLength,
  )
  const reader = { tokenizer, markers: findMarkers(tokenizer), contextLength }
  return {
    contextLength,
    dimensions: output.dimensions,
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

async function runBatch(
  model: { runtime: Runtime; session: ModelSession; files: EncoderFiles; output: EncoderOutput },
  texts: readonly EncodedText[],
): Promise<readonly Float32Array[]> {
  const { runtime, session, files, output } = model
  const batch = buildBatch(runtime, session, texts, files)
  const { name } = output
  try {
    const fetched = await session.run(batch.feeds, { [name]: null })
    const tensor = fetched[name] as (typeof fetched)[string]
    try {
      const data = toFloat32(tensor)
      const dimensions = tensor.dims.at(-1) as number
      const vectors: Float32Array[] = []
      for (const row of texts.keys()) {
        const vector = output.isPooled
          ? data.slice(row * dimensions, (row + 1) * dimensions)
          : poolAll(files.head.pooling, { ...batch, data, dimensions }, row)
        // Large layers take milliseconds for each text, and others wait for the event loop.
        if (output.dense.length > 0) await setImmediate()
        vectors.push(output.dense.reduce((value, layer) => layer.apply(value), vector))
      }
      return files.head.isNormalized ? vectors.map(normalize) : vectors
    } finally {
      tensor.dispose()
    }
  } finally {
    batch.dispose()
  }
}
