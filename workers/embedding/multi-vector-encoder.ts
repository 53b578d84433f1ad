import { setImmediate } from 'node:timers/promises'

import { defined } from '#shared/json.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

import type { EncoderOptions } from './encoder.ts'
import { buildBatch, checkInputs, statedShapeOf, toFloat32 } from './encoder-batch.ts'
import { type EncoderFiles, readEncoderFiles } from './encoder-files.ts'
import type { TokenMatrix } from './max-sim.ts'
import { chooseTokenOutput, layersAfter, type TokenLayers } from './multi-vector-layers.ts'
import {
  createMultiVectorReader,
  type MultiVectorReader,
  type MultiVectorText,
} from './multi-vector-reader.ts'
import {
  type MultiVectorSettings,
  PLAIN_SETTINGS,
  readMultiVectorSettings,
} from './multi-vector-settings.ts'
import { normalize } from './pooling.ts'
import { openTextBatcher } from './text-batcher.ts'

/** A loaded model that computes a vector for each token of a text, such as ColBERT. */
export interface MultiVectorEncoder extends MultiVectorReader {
  readonly dimensions: number
  readonly isTruncatable: boolean
  embed(text: MultiVectorText, signal: AbortSignal): Promise<TokenMatrix>
  readonly waitingCount: number
  close(): Promise<void>
}

/** Options of such a model. */
interface MultiVectorOptions extends Omit<EncoderOptions, 'pooling'> {
  /** Tokens read of a document. Overrides the length in the model's files. */
  readonly documentLength?: number
  /** Prefixes of queries and passages. Override those in the model's files. */
  readonly prompts?: { readonly query?: string; readonly passage?: string }
}

/** Loads ColBERT in the format of its authors, PyLate, sentence-transformers or FlagEmbedding. */
export async function openMultiVectorEncoder(
  options: MultiVectorOptions,
): Promise<MultiVectorEncoder> {
  const { folder, runtime, session = {} } = options
  const files = await readEncoderFiles(folder, options.onnxFile)
  const settings = await readMultiVectorSettings(folder)
  const sessions = await openSessionPool(runtime, files.modelFile, session)
  return closeOnFailure(sessions, () => assemble(options, { files, settings, sessions }))
}

interface Parts {
  readonly files: EncoderFiles
  readonly settings: MultiVectorSettings | undefined
  readonly sessions: SessionPool
}

async function assemble(
  options: MultiVectorOptions,
  { files, settings: stated, sessions }: Parts,
): Promise<MultiVectorEncoder> {
  const { runtime, folder } = options
  checkInputs(sessions.wide)
  if (statedShapeOf(sessions.wide).width !== undefined) {
    throw new ModelLoadError(files.modelFile, 'its texts must have any length')
  }
  const output = chooseTokenOutput(sessions.wide, stated)
  const settings = stated ?? PLAIN_SETTINGS
  const isMasked = sessions.wide.inputs.some(({ name }) => name === 'attention_mask')
  if (settings.expansion?.isAttended === false && !isMasked) {
    throw new ModelLoadError(
      files.modelFile,
      'queries are filled with masks that no token reads, which needs attention_mask',
    )
  }
  const reader = await createMultiVectorReader(settings, {
    folder,
    files,
    tokenizer: createTokenizer(files.tokenizerJson, files.tokenizerConfig),
    maxContextTokens: options.maxContextTokens,
    documentLength: options.documentLength,
    prompts: options.prompts ?? {},
  })
  const run = (session: ModelSession, texts: readonly MultiVectorText[]) =>
    runBatch({ runtime, session, files, output }, texts)
  const width = await probe(reader, files, (texts) => run(sessions.wide, texts))
  const layers = await layersAfter(width, settings, { folder, file: files.modelFile })
  const batcher = await openTextBatcher<TokenMatrix>(
    sessions,
    {
      canMixLengths: isMasked,
      ...(options.maxBatchTokens !== undefined && { maxBatchTokens: options.maxBatchTokens }),
      ...(options.onBatch !== undefined && { onBatch: options.onBatch }),
    },
    (session, texts) => run(session, texts as readonly MultiVectorText[]),
  )
  return {
    contextLength: reader.contextLength,
    dimensions: layers.dimensions,
    isTruncatable: options.isTruncatable ?? files.isTruncatable,
    read: reader.read,
    embed: async (text, signal) =>
      finish(await batcher.submit(text, signal), layers, settings.isNormalized),
    get waitingCount() {
      return batcher.waitingCount
    },
    close: () => sessions.close(),
  }
}

/** The width of the vectors of the graph. Throws `ModelLoadError` when they are not numbers. */
async function probe(
  reader: MultiVectorReader,
  { modelFile }: EncoderFiles,
  run: (texts: readonly MultiVectorText[]) => Promise<readonly TokenMatrix[]>,
): Promise<number> {
  const [matrix] = await run([await reader.read('a', 'query', true)])
  const { values, dimensions } = defined(matrix)
  if (values.every(Number.isFinite)) return dimensions
  throw new ModelLoadError(modelFile, 'the vectors of a short text are not all finite numbers')
}

async function runBatch(
  {
    runtime,
    session,
    files,
    output,
  }: {
    readonly runtime: Runtime
    readonly session: ModelSession
    readonly files: EncoderFiles
    readonly output: string
  },
  texts: readonly MultiVectorText[],
): Promise<readonly TokenMatrix[]> {
  const batch = buildBatch(runtime, session, texts, files)
  try {
    const fetched = await session.run(batch.feeds, { [output]: null })
    const tensor = defined(fetched[output])
    try {
      const data = toFloat32(tensor)
      const [, rowWidth = 0, dimensions = 0] = tensor.dims as readonly number[]
      // FlagEmbedding omits the vector of the first token.
      const left = batch.width - rowWidth
      if (left !== 0 && left !== 1) {
        throw new ModelLoadError(
          files.modelFile,
          `${output} has ${rowWidth} vectors of ${batch.width} tokens`,
        )
      }
      return texts.map(({ kept }, row) => {
        const positions = kept.filter((position) => position >= left)
        const values = new Float32Array(positions.length * dimensions)
        for (const [at, position] of positions.entries()) {
          const start = (row * rowWidth + position - left) * dimensions
          values.set(data.subarray(start, start + dimensions), at * dimensions)
        }
        return { values, dimensions }
      })
    } finally {
      tensor.dispose()
    }
  } finally {
    batch.dispose()
  }
}

// About 4 ms of multiplications.
const SLICE_PRODUCTS = 2 ** 22

/** Applies the layers after the graph to the vectors; the event loop runs in between. */
async function finish(
  { values, dimensions: width }: TokenMatrix,
  { layers, dimensions, products }: TokenLayers,
  isNormalized: boolean,
): Promise<TokenMatrix> {
  const count = values.length / width
  const finished = new Float32Array(count * dimensions)
  let sinceTurn = 0
  for (let at = 0; at < count; at++) {
    const vector = values.subarray(at * width, (at + 1) * width)
    const made = layers.reduce((given, layer) => layer.apply(given), vector)
    finished.set(isNormalized ? normalize(made) : made, at * dimensions)
    sinceTurn += products
    if (sinceTurn < SLICE_PRODUCTS) continue
    sinceTurn = 0
    await setImmediate()
  }
  return { values: finished, dimensions }
}
