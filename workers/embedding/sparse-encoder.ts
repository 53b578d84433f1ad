import { defined } from '#shared/json.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'

import type { Encoder, EncoderOptions } from './encoder.ts'
import { buildBatch, checkInputs, contextLengthIn, type EncodedText } from './encoder-batch.ts'
import { type EncoderFiles, readEncoderFiles } from './encoder-files.ts'
import { findMarkers } from './markers.ts'
import { readText, readTextCut, readTokenIds } from './read-input.ts'
import {
  chooseSparseOutput,
  readSparseHead,
  type SparseHead,
  type SparseOutput,
} from './sparse-head.ts'
import { poolLogits, poolWeights, type SparseVector } from './sparse-pooling.ts'
import { openTextBatcher } from './text-batcher.ts'

/** A loaded model that computes a weight for each token of its vocabulary. */
export interface SparseEncoder
  extends Pick<
    Encoder,
    'contextLength' | 'encodeText' | 'checkTokenIds' | 'prompts' | 'waitingCount' | 'close'
  > {
  embed(tokenIds: readonly number[], signal: AbortSignal): Promise<SparseVector>
}

// The most logits of a run: 128 MB in 32 bits. A text with more runs alone.
const LOGITS_MAX = 2 ** 25
const BATCH_TOKENS_MAX = 4096

/** Loads a sparse encoder: SPLADE, or the sparse head of BGE-M3. Throws `ModelLoadError`. */
export async function openSparseEncoder(options: EncoderOptions): Promise<SparseEncoder> {
  const files = await readEncoderFiles(options.folder, options.onnxFile)
  const head = await readSparseHead(options.folder)
  const sessions = await openSessionPool(options.runtime, files.modelFile, options.session ?? {})
  return closeOnFailure(sessions, () => assemble(options, { files, head, sessions }))
}

async function assemble(
  options: EncoderOptions,
  {
    files,
    head,
    sessions,
  }: { readonly files: EncoderFiles; readonly head: SparseHead; readonly sessions: SessionPool },
): Promise<SparseEncoder> {
  const { runtime, maxContextTokens = files.contextLength } = options
  checkInputs(sessions.wide)
  const tokenizer = createTokenizer(files.tokenizerJson, files.tokenizerConfig)
  const output = chooseSparseOutput(sessions.wide, tokenizer.pieces.size)
  const isSpecial = (id: number): boolean =>
    id === files.unknownId || tokenizer.pieces.isSpecial(id)
  const contextLength = await contextLengthIn(sessions.wide, files.contextLength, maxContextTokens)
  const tokensOfLogits = Math.max(Math.floor(LOGITS_MAX / output.width), 1)
  const batcher = await openTextBatcher<SparseVector>(
    sessions,
    {
      canMixLengths: sessions.wide.inputs.some(({ name }) => name === 'attention_mask'),
      maxBatchTokens: Math.min(options.maxBatchTokens ?? BATCH_TOKENS_MAX, tokensOfLogits),
      ...(options.onBatch !== undefined && { onBatch: options.onBatch }),
    },
    (session, texts) => runBatch({ runtime, session, files, head, output, isSpecial }, texts),
  )
  const reader = { tokenizer, markers: findMarkers(tokenizer), contextLength, param: 'inputs' }
  return {
    contextLength,
    prompts: files.prompts,
    encodeText: (text, tokensMax, side) =>
      tokensMax === undefined ? readText(reader, text) : readTextCut(reader, text, tokensMax, side),
    checkTokenIds: (tokenIds, tokensMax, side) => readTokenIds(reader, tokenIds, tokensMax, side),
    embed: (tokenIds, signal) => batcher.submit({ tokenIds }, signal),
    get waitingCount() {
      return batcher.waitingCount
    },
    close: () => sessions.close(),
  }
}

async function runBatch(
  {
    runtime,
    session,
    files,
    head,
    output,
    isSpecial,
  }: {
    readonly runtime: Runtime
    readonly session: ModelSession
    readonly files: EncoderFiles
    readonly head: SparseHead
    readonly output: SparseOutput
    readonly isSpecial: (tokenId: number) => boolean
  },
  texts: readonly EncodedText[],
): Promise<readonly SparseVector[]> {
  const batch = buildBatch(runtime, session, texts, files)
  try {
    const fetched = await session.run(batch.feeds, { [output.name]: null })
    const tensor = defined(fetched[output.name])
    try {
      const values = tensor.data as ArrayLike<number>
      const width = tensor.dims.at(-1) as number
      const vectors: SparseVector[] = []
      for (const [row, { tokenIds }] of texts.entries()) {
        const first = row * batch.width
        vectors.push(
          output.kind === 'weights'
            ? poolWeights({ values, first, tokenIds }, isSpecial)
            : await poolLogits({ values, first, tokenIds }, { ...head, width }),
        )
      }
      return vectors
    } finally {
      tensor.dispose()
    }
  } finally {
    batch.dispose()
  }
}
