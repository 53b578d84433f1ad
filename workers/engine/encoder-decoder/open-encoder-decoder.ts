import { failure } from '#shared/errors.ts'
import { Engine } from '#workers/engine/engine.ts'
import type { SequenceRequest, TextEngine } from '#workers/engine/types.ts'
import { type OperatorMarks, readOperators } from '#workers/graph/operators.ts'
import type { EncoderDecoderFiles } from '#workers/models/encoder-decoder-files.ts'
import { closeOnFailure, openAll } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

import { checkDecoderInputs, STATES, STATES_MASK } from './decoder-run.ts'
import { EncoderDecoderRunner } from './encoder-decoder-runner.ts'
import { SourceEncoder } from './source-encoder.ts'

interface EncoderDecoderOptions {
  readonly runtime: Runtime
  readonly files: EncoderDecoderFiles
  readonly session: SessionOptions
  readonly slots: number
  readonly waitingMax: number
  /** Positions of the encoder; the decoder has as many. */
  readonly contextLength: number
  /** The size in config.json, for graphs whose logits have no fixed width. */
  readonly vocabSize: number | undefined
}

/** Loads an encoder and its decoder as an engine. Throws `ModelLoadError`. */
export async function openEncoderDecoder(options: EncoderDecoderOptions): Promise<TextEngine> {
  const { runtime, files, session: sessionOptions } = options
  const modelFiles = [files.encoderFile, ...files.decoderFiles]
  const marks = await Promise.all(modelFiles.map(readOperators))
  const sessions = await openAll(modelFiles.map((file) => runtime.load(file, sessionOptions)))
  const close = async (): Promise<void> => {
    await Promise.all(sessions.map((session) => session.close()))
  }
  return closeOnFailure({ close }, () => {
    const [encoder, first, later = first] = sessions as [ModelSession, ModelSession, ModelSession?]
    return assemble(options, { encoder, first, later, marks, modelFiles, close })
  })
}

interface Loaded {
  readonly encoder: ModelSession
  readonly first: ModelSession
  readonly later: ModelSession
  readonly marks: readonly OperatorMarks[]
  readonly modelFiles: readonly string[]
  readonly close: () => Promise<void>
}

function assemble(options: EncoderDecoderOptions, loaded: Loaded): TextEngine {
  const { runtime, slots, waitingMax, contextLength } = options
  const { encoder, first, later, marks, modelFiles, close } = loaded
  for (const session of [first, later]) checkDecoderInputs(session)
  const hasInput = (name: string) => first.inputs.some((input) => input.name === name)
  const stateType = first.inputs.find(({ name }) => name === STATES)?.type ?? 'float32'
  const sources = new SourceEncoder(runtime, encoder, stateType)
  const runner = new EncoderDecoderRunner(sources, { runtime, first, later, stateType })
  const isMasked =
    sources.hasMask &&
    hasInput(STATES_MASK) &&
    !marks.some(({ hasQuantizedMask }) => hasQuantizedMask)
  // Activations with one scale for a whole tensor: rows of a run would change each other's results.
  const isRowCoupled = marks.some(({ hasDynamicQuantization }) => hasDynamicQuantization)
  const engine = new Engine(runner, {
    slots,
    waitingMax,
    // For the scheduler a text is its source and its answer, each as long as the context.
    contextLength: 2 * contextLength,
    // The encoder reads a source in one run.
    prefillChunk: 2 * contextLength,
    reusesPrefixes: false,
    givesAllLogits: true,
    batchesPrompts: isRowCoupled ? 'none' : isMasked ? 'any' : 'sameLength',
    draftMax: 0,
  })
  return {
    contextLength,
    decoderLength: contextLength,
    vocabSize: vocabSizeOf(first, options),
    cachePath: 'growing',
    modelFiles,
    async run(request, runOptions) {
      return await engine.run(withinContext(request, contextLength), runOptions)
    },
    fitAdapter: () =>
      Promise.reject(
        new ModelLoadError(first.file, 'adapters of encoder-decoders are not supported'),
      ),
    onStep: (listener) => engine.onStep(listener),
    stats: () => engine.stats(),
    async close() {
      await engine.close()
      await close()
    },
  }
}

/** Limits the answer of a request to the decoder's positions. */
function withinContext(request: SequenceRequest, contextLength: number): SequenceRequest {
  const { source, promptTokenIds, maxNewTokens } = request
  if (source === undefined) throw new Error('a text of an encoder-decoder needs a source')
  if (source.length > contextLength) {
    throw failure.invalidRequest(
      `the model's context is ${contextLength} tokens, but the prompt has ${source.length}`,
      { code: 'context_length_exceeded', param: 'prompt' },
    )
  }
  const used = source.startTokenIds.length + promptTokenIds.length - source.length
  return { ...request, maxNewTokens: Math.min(maxNewTokens, Math.max(contextLength - used, 0)) }
}

function vocabSizeOf(
  { file, inputs, outputs }: ModelSession,
  { vocabSize }: Pick<EncoderDecoderOptions, 'vocabSize'>,
): number {
  const width = outputs.find(({ name }) => name === 'logits')?.dims.at(-1)
  const found = typeof width === 'number' ? width : vocabSize
  const isDecoder = inputs.some(({ name, type }) => name === 'input_ids' && type === 'int64')
  if (isDecoder && width !== undefined && found !== undefined) return found
  throw new ModelLoadError(file, 'not a decoder: it needs input_ids of type int64, and logits')
}
