import { setImmediate } from 'node:timers/promises'

import type { TruncationSide } from '#shared/contracts/embedding.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

import {
  buildBatch,
  checkInputs,
  contextLengthIn,
  ENCODER_INPUTS,
  type EncodedText,
  hasTasks,
  isBag,
  toFloat32,
} from './encoder-batch.ts'
import { type EncoderFiles, readEncoderFiles } from './encoder-files.ts'
import { chooseOutput, type EncoderOutput, TEXT_OUTPUTS } from './encoder-output.ts'
import { towerOf } from './joint-towers.ts'
import { findMarkers, NO_MARKERS } from './markers.ts'
import { normalize, poolAll } from './pooling.ts'
import { readText, readTextCut, readTokenIds } from './read-input.ts'
import { type BatchOptions, openTextBatcher } from './text-batcher.ts'

/** A loaded embedding model; texts of all requests share its batches. */
export interface Encoder {
  readonly contextLength: number
  readonly dimensions: number | undefined
  readonly isTruncatable: boolean
  /** The default pooling mode, used because neither the files nor the catalogue name one. */
  readonly assumedPooling: string | undefined
  /**
   * Tokens of a text with the model's own markers, cut to `tokensMax` if given. Throws
   * `context_length_exceeded` otherwise.
   */
  encodeText(text: string, tokensMax?: number, side?: TruncationSide): Promise<readonly number[]>
  /** The adapters that a request may choose from, with the instructions before their texts. */
  readonly tasks: EncoderFiles['tasks']
  /** The prefixes of queries and passages, as the model's files say. */
  readonly prompts: EncoderFiles['prompts']
  /** Checks ids of the model's own vocabulary and cuts them likewise. Throws `invalidRequest`. */
  checkTokenIds(
    tokenIds: readonly number[],
    tokensMax?: number,
    side?: TruncationSide,
  ): readonly number[]
  /** The vector of one text, float32, normalized if the model's files say so. */
  embed(tokenIds: readonly number[], signal: AbortSignal, taskId?: number): Promise<Float32Array>
  readonly waitingCount: number
  close(): Promise<void>
}

/** Options of an encoder. */
export interface EncoderOptions extends BatchOptions {
  readonly runtime: Runtime
  readonly folder: string
  readonly onnxFile?: string
  readonly maxContextTokens?: number
  readonly session?: SessionOptions
  /** The pooling mode, by the names of sentence-transformers; that of the folder if absent. */
  readonly pooling?: string
  /** Whether vectors may be cut to leading dimensions; as in the folder if absent. */
  readonly isTruncatable?: boolean
  /** Batches that may run in parallel on parts of the cores; usually chosen by the encoder. */
  readonly poolSize?: number
}

/** Loads an encoder in the hub layout (BERT, MiniLM, BGE, E5, GTE, Nomic families). */
export async function openEncoder(options: EncoderOptions): Promise<Encoder> {
  const { runtime } = options
  const files = await readEncoderFiles(options.folder, options.onnxFile, options.pooling)
  if (files.rendersChats) {
    throw new ModelLoadError(
      options.folder,
      'its texts are messages of a chat template (modality_config.message in sentence_bert_config.json), which is not supported for embeddings',
    )
  }
  const { poolSize: poolSizeWanted } = options
  const source = files.isTower ? await towerOf(files.modelFile, TEXT_OUTPUTS) : files.modelFile
  const sessions = await openSessionPool(runtime, source, {
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
  checkInputs(sessions.wide, ENCODER_INPUTS)
  const output = chooseOutput(sessions.wide, files.head, files.isTower)
  if (options.pooling !== undefined && output.isPooled) {
    throw new ModelLoadError(
      files.modelFile,
      'options.pooling has no effect: the graph itself makes one vector for each text',
    )
  }
  const tasks = hasTasks(sessions.wide) ? files.tasks : []
  if (hasTasks(sessions.wide) && tasks.length === 0) {
    throw new ModelLoadError(files.modelFile, 'config.json names no lora_adaptations for task_id')
  }
  const isStatic = isBag(sessions.wide)
  if (isStatic && !output.isPooled) {
    throw new ModelLoadError(files.modelFile, 'offsets need an output of [batch, dimensions]')
  }
  const isMasked = sessions.wide.inputs.some(({ name }) => name === 'attention_mask')
  const canMixLengths = isMasked || isStatic || files.paddedLength !== undefined
  const batcher = await openTextBatcher<Float32Array>(
    sessions,
    { ...options, canMixLengths },
    (session, texts) => runBatch({ runtime, session, files, output }, texts),
  )
  const tokenizer = createTokenizer(files.tokenizerJson, files.tokenizerConfig)
  const { maxContextTokens } = options
  const contextLength = await contextLengthIn(sessions.wide, files.contextLength, maxContextTokens)
  const markers = isStatic ? NO_MARKERS : findMarkers(tokenizer, files.tokenizerConfig)
  const reader = { tokenizer, markers, contextLength }
  // A static embedding of an unknown word carries no meaning.
  const kept = (tokenIds: readonly number[]): readonly number[] =>
    isStatic ? tokenIds.filter((id) => id !== files.unknownId) : tokenIds
  return {
    contextLength,
    tasks,
    prompts: files.prompts,
    dimensions: output.dimensions,
    isTruncatable: options.isTruncatable ?? files.isTruncatable,
    assumedPooling: output.isPooled || files.head.isStated ? undefined : files.head.pooling[0],
    async encodeText(text, tokensMax, side) {
      if (tokensMax === undefined) return kept(await readText(reader, text))
      return kept(await readTextCut(reader, text, tokensMax, side))
    },
    checkTokenIds: (tokenIds, tokensMax, side) => readTokenIds(reader, tokenIds, tokensMax, side),
    embed: (tokenIds, signal, taskId) =>
      batcher.submit({ tokenIds, ...(taskId !== undefined && { taskId }) }, signal),
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
        const isEmpty = texts[row]?.tokenIds.length === 0
        const vector = isEmpty
          ? new Float32Array(dimensions)
          : output.isPooled
            ? data.slice(row * dimensions, (row + 1) * dimensions)
            : poolAll(files.head.pooling, { ...batch, data, dimensions }, row)
        // Large layers take milliseconds for each text, so the event loop runs in between.
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
