import { createHash } from 'node:crypto'
import { realpath } from 'node:fs/promises'
import { dirname } from 'node:path'

import type { Clock } from '#shared/clock.ts'
import type {
  TrainingCheckpoint,
  TrainingInput,
  TrainingProgress,
  TrainingResult,
  TrainingStatistics,
} from '#shared/contracts/training.ts'
import { failure } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { findLinearModules } from '#workers/adapters/target-modules.ts'
import { findDecoderFile, readDecoderConfig } from '#workers/engine/model-files.ts'
import { rewriteDecoder } from '#workers/engine/rewrite/rewrite-decoder.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import type { Model } from '#workers/graph/model.ts'
import { findOperators } from '#workers/graph/operators.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import type { TextModel } from '#workers/text/text-model.ts'

import { isFed, LossModel } from './loss-model.ts'
import { MatrixLayout } from './matrices.ts'
import { readReplay } from './replay.ts'
import { settle, settleRank } from './settings.ts'
import { numSteps, train } from './trainer.ts'
import { readExamples, TrainingFiles } from './training-files.ts'
import { makeTrainingGraph, type TrainingGraph } from './training-graph.ts'
import { beginState, type TrainingState } from './training-state.ts'

/** A decoder that low-rank adapters are trained for. */
interface TrainingBase {
  readonly modelId: string
  readonly folder: string
  readonly text: TextModel
  readonly runtime: Runtime
  readonly session: SessionOptions
  readonly onnxFile?: string
  /** The longest text that is trained; longer ones are cut. */
  readonly tokensMax: number
}

interface TrainingTools {
  readonly storage: ObjectStore
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly yieldNow: () => Promise<void>
  /** Called once when the examples are read, before the first step. */
  readonly onStart: (statistics: TrainingStatistics) => void
  readonly onProgress: (progress: TrainingProgress) => void
}

const STATE_INTERVAL_MS = 30_000
/** Adapters that are stored beside the last one, at the ends of epochs. */
const CHECKPOINTS_MAX = 10
/** Steps that a continued training reports again; more than are made before a pause takes hold. */
const STEPS_REPEATED = 200

/**
 * Trains an adapter to its end, from the stored state of an earlier run if there is one; the last
 * steps of that run are then reported again. When the signal aborts, the state of the last complete
 * step is stored before the error is thrown.
 */
export async function runTraining(
  base: TrainingBase,
  input: TrainingInput,
  tools: TrainingTools,
): Promise<TrainingResult> {
  const { storage, signal, yieldNow, onStart } = tools
  const shape = settleRank(input.hyperparameters)
  // An operator without a gradient refuses the job before a file is read.
  const { graph, file } = await readTrainingGraph(base, shape)
  const reading = { text: base.text, tokensMax: base.tokensMax, signal, yieldNow }
  const training = await readExamples(storage, input.examplesKey, reading)
  const validation =
    input.validationKey === null
      ? undefined
      : await readExamples(storage, input.validationKey, reading)
  const replay = await readReplay(base.folder, {
    tokensMax: base.tokensMax,
    vocabularySize: base.text.tokenizer.pieces.size,
  })
  const modules = graph.matrices.map(({ module }) => module)
  const settings = settle(input, training.examples, modules)
  const plan = {
    settings,
    seed: input.seed,
    examples: training.examples,
    validation: validation?.examples ?? [],
    replay: replay.examples,
    limits: { tokensMax: RUN_TOKENS, packs: graph.hasSegments },
  }
  onStart(training.statistics)
  const layout = new MatrixLayout(graph.matrices, shape.rank)
  const files = new TrainingFiles(storage, input.outputPrefix)
  const facts = [
    base.modelId,
    settings,
    input.seed,
    training.digest,
    validation?.digest,
    replay.digest,
    layout.size,
  ]
  const fingerprint = createHash('sha256').update(JSON.stringify(facts)).digest('hex')
  const found = await files.findState(fingerprint, layout.size)
  const state = found ?? beginState(layout.initialize(input.seed))
  const { elements } = state.optimizer
  const { runtime, session } = base
  const model = await LossModel.open(runtime, graph, { file, session, layout, elements })
  const keep = { files, fingerprint, layout, shape, modelId: base.modelId }
  try {
    const ended = await follow({ plan, state, model, statistics: training.statistics }, keep, tools)
    return { ...ended, steps: state.optimizer.steps, statistics: training.statistics }
  } finally {
    await model.close()
  }
}

/** Tokens of a run of the graph, or those of one longer text; they bound its memory. */
const RUN_TOKENS = 1024

interface Keep {
  readonly files: TrainingFiles
  readonly fingerprint: string
  readonly layout: MatrixLayout
  readonly shape: { readonly rank: number; readonly alpha: number }
  readonly modelId: string
}

/** Follows the steps: reports them, and stores states and adapters. */
async function follow(
  {
    plan,
    model,
    statistics,
    ...begun
  }: {
    readonly plan: Parameters<typeof train>[0]
    readonly model: LossModel
    readonly state: TrainingState
    readonly statistics: TrainingStatistics
  },
  { files, fingerprint, layout, shape, modelId }: Keep,
  { signal, clock, yieldNow, onProgress }: TrainingTools,
): Promise<Omit<TrainingResult, 'steps' | 'statistics'>> {
  let { state } = begun
  const { optimizer, reached } = state
  const adapter = { ...shape, layout, baseModel: modelId }
  const { epochs, batchSize } = plan.settings
  const every = (numSteps(plan) / epochs) * Math.ceil(epochs / CHECKPOINTS_MAX)
  let settledSteps = optimizer.steps
  for (const progress of state.recent) onProgress(progress)
  let storedAtMs = clock.monotonic()
  try {
    const events = train(plan, { model, optimizer, reached }, { signal, yieldNow })
    for await (const { isEpochEnd, ...progress } of events) {
      let checkpoint: TrainingCheckpoint | undefined
      if (isEpochEnd && progress.step % every === 0) {
        const { step } = progress
        const { prefix } = await files.putAdapter(optimizer.elements, { ...adapter, step })
        const { trainLoss, validationLoss } = reached
        checkpoint = { step, prefix, trainLoss, validationLoss }
        state = { ...state, checkpoints: [...state.checkpoints, checkpoint] }
      }
      settledSteps = progress.step
      const report: TrainingProgress = {
        ...progress,
        ...(progress.step === 1 && { statistics, settled: { epochs, batchSize } }),
        ...(checkpoint && { checkpoint: { step: checkpoint.step, prefix: checkpoint.prefix } }),
      }
      onProgress(report)
      state = { ...state, recent: [...state.recent, report].slice(-STEPS_REPEATED) }
      if (clock.monotonic() - storedAtMs >= STATE_INTERVAL_MS) {
        await files.putState(state, fingerprint)
        storedAtMs = clock.monotonic()
      }
      await yieldNow()
      signal.throwIfAborted()
    }
  } catch (error) {
    // In the middle of the end of an epoch, the state of the last interval is the newest whole one.
    if (signal.aborted && optimizer.steps === settledSteps && settledSteps > 0) {
      await files.putState(state, fingerprint)
    }
    throw error
  }
  const stored = await files.putAdapter(reached.best?.elements ?? optimizer.elements, {
    ...adapter,
    step: 'last',
  })
  await files.deleteState()
  return {
    adapter: stored,
    trainedTokens: reached.trainedTokens,
    trainLoss: reached.trainLoss,
    validationLoss: reached.best?.loss ?? null,
    checkpoints: state.checkpoints,
  }
}

/** The graphs of a training of the decoder in a folder, and the file of its weights. */
export async function readTrainingGraph(
  { folder, onnxFile, runtime }: Pick<TrainingBase, 'folder' | 'onnxFile' | 'runtime'>,
  shape: { readonly rank: number; readonly alpha: number },
): Promise<{ readonly graph: TrainingGraph; readonly file: string }> {
  const found = await findDecoderFile(folder, { onnxFile })
  const file = await realpath(found)
  const model = await withSharedAttention(await readModelFile(file), { file, folder, runtime })
  const unknown = model.graph.inputs.find((value) => !isFed(value))
  if (unknown !== undefined) {
    throw failure.invalidRequest(
      `The model cannot be fine-tuned: its graph reads the input ${unknown.name}.`,
      { param: 'model', code: 'model_not_supported' },
    )
  }
  const modules = findLinearModules(new GraphView(model.graph)).filter(({ path }) => {
    return !HEAD.test(path)
  })
  const graph = makeTrainingGraph(model, modules, shape)
  if (graph.matrices.length > 0) return { graph, file }
  throw failure.invalidRequest('The model cannot be fine-tuned: it has no linear layer by name.', {
    param: 'model',
    code: 'model_not_supported',
  })
}

/** PEFT leaves out the output layer as well. */
const HEAD = /(^|\.)(lm_head|embed_out)$/

/** The model with attention whose gradient is known, where it can be rewritten so. */
async function withSharedAttention(
  model: Model,
  {
    file,
    folder,
    runtime,
  }: { readonly file: string; readonly folder: string; readonly runtime: Runtime },
): Promise<Model> {
  const { numHeads, contextLength = 1024 } = await readDecoderConfig(folder)
  if (findOperators(model).hasGroupQueryAttention || numHeads === undefined) return model
  const context = { runtime, file, folder: dirname(file), executionProvider: 'cpu' } as const
  return (await rewriteDecoder(context, model, { numHeads, contextLength })) ?? model
}
