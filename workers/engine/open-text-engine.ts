import { realpath } from 'node:fs/promises'
import { dirname } from 'node:path'

import { addAdapters } from '#workers/adapters/adapter-graph.ts'
import { AdapterRuns } from '#workers/adapters/adapter-runs.ts'
import { findOperators } from '#workers/graph/operators.ts'
import { readTablePositions } from '#workers/graph/position-tables.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { resolveWeights } from '#workers/graph/resolve-weights.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { WEIGHT_SUFFIXES } from '#workers/models/choose-files.ts'
import {
  type EncoderDecoderFiles,
  findEncoderDecoder,
} from '#workers/models/encoder-decoder-files.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError, ModelRunError } from '#workers/runtime/errors.ts'
import { CAN_RELEASE_PAGES } from '#workers/runtime/release-pages.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { ExecutionProvider } from '#workers/runtime/session-options.ts'

import { CONTEXT_TOKENS_UNKNOWN, type ContextLimits, growingDemand } from './context-demand.ts'
import { type ContextDemand, chooseContext, chooseSlotsMax } from './context-length.ts'
import { type DecoderGraph, findMaskedStates, readDecoderGraph } from './decoder-graph.ts'
import { DeviceCache } from './device/device-cache.ts'
import { DeviceGrowingMemory } from './device/device-growing-memory.ts'
import { DeviceSlotCache } from './device/device-slot-cache.ts'
import { openEncoderDecoder } from './encoder-decoder/open-encoder-decoder.ts'
import { Engine } from './engine.ts'
import { refuseExperts } from './expert-operators.ts'
import { hostGrowingMemory } from './growing-cache.ts'
import { GrowingRunner } from './growing-runner.ts'
import { InPlaceRunner } from './in-place-runner.ts'
import {
  type DecoderConfig,
  findCompanion,
  findDecoderFile,
  readDecoderConfig,
} from './model-files.ts'
import type { ModelRunner, RunnerOptions } from './model-runner.ts'
import { hasCacheInputs, withHeadDim, withWholeCaches, withWindowLength } from './past-inputs.ts'
import { preferInPlace } from './prefer-in-place.ts'
import { narrowCaches } from './rewrite/cache-casts.ts'
import { findRunLengths, type RunLengths, tryRuns } from './run-lengths.ts'
import type { SchedulerOptions } from './scheduler.ts'
import { HostSlotCache } from './slot-cache.ts'
import { TokenEmbedder } from './token-embedder.ts'
import type { TextEngine } from './types.ts'
import { withUsualNames } from './usual-names.ts'
import { withWideIntegers } from './wide-integers.ts'

/** Options of a text engine. */
export interface TextEngineOptions {
  readonly runtime: Runtime
  /** A folder in the Hugging Face layout. */
  readonly folder: string
  /** The file below `onnx/`; the best one when absent. */
  readonly onnxFile?: string
  /** Sequences that run at a time, each as long as the context. */
  readonly slots: number
  /**
   * Sequences that run at a time while the memory of `slots` holds them; `slots` when absent.
   * Growing caches and caches on devices stay at `slots`.
   */
  readonly slotsMax?: number
  /** Limits the context in place of the limit by memory; never above the model's own. */
  readonly maxContextTokens?: number
  /** Memory for weights and caches; the memory of the process when absent. */
  readonly memoryBytes?: number
  /** Tokens of a prompt per run. */
  readonly prefillChunk?: number
  readonly intraOpThreads?: number
  readonly executionProvider?: ExecutionProvider
  /** The location of the cache; by default the execution provider's device. */
  readonly cacheMemory?: 'host' | 'device'
  /** Runs the graph as stored, even if its cache could be written in place. */
  readonly asExported?: boolean
}

const PREFILL_CHUNK = 128 // tokens; about as long as a few decode steps of a full engine
const DRAFT_MAX = 8 // tokens; a run of nine costs little more than a run of one
const WAITING_MAX = 4096 // sequences
const MEASURED = { slots: 1, contextLength: 16, chunkMax: 4 } // for the text that is used to measure run lengths
const SOURCE_TOKENS_MAX = 8192 // an encoder relates all tokens of a source in one run

/** Loads a decoder, or an encoder and its decoder, as an engine. Throws `ModelLoadError`. */
export async function openTextEngine(options: TextEngineOptions): Promise<TextEngine> {
  const { runtime, folder, executionProvider = 'cpu', intraOpThreads } = options
  const config = await readDecoderConfig(folder)
  const files = await findPair(options, config)
  if (files !== undefined) return openPair(options, files, config)
  const file = await findDecoderFile(folder, options)
  const { realFile, read, original, isFixed } = await readDecoderFile(file, options, config)
  const operators = findOperators(original)
  if (executionProvider !== 'cuda') refuseExperts(original, file)
  const context = { runtime, file: realFile, folder: dirname(realFile), executionProvider }
  const { rewritten, demand: inPlace } = await preferInPlace(context, limitsOf(options), {
    config,
    original,
    operators,
    isFixed,
  })
  const model = rewritten ?? original
  const isExported = rewritten === undefined && !operators.hasGroupQueryAttention
  const isGrowing = isExported && hasCacheInputs(original)
  const demand = isGrowing ? growingDemand(inPlace) : inPlace
  const { contextLength } = chooseContext(demand)
  const source =
    model === read ? file : { name: file, bytes: writeModel(model), folder: dirname(realFile) }
  const sessionOptions = {
    executionProvider,
    ...(intraOpThreads !== undefined && { intraOpThreads }),
  }
  const session = await runtime.load(source, sessionOptions)
  return closeOnFailure(session, async () => {
    const marks = model === original ? operators : findOperators(model)
    const areStatesMasked = findMaskedStates(model)
    const graph = readDecoderGraph(session, { ...marks, areStatesMasked })
    const isSplit = config.shortTextMax !== undefined && config.shortTextMax < contextLength
    const shortTextMax = isSplit ? config.shortTextMax : undefined
    const adapters = new AdapterRuns(runtime, async () => {
      const adapted = addAdapters(model)
      if (adapted === undefined) {
        throw new ModelLoadError(file, 'the graph has no linear layers that adapters could change')
      }
      const bytes = writeModel(adapted.model)
      const withInputs = { name: `${file} (with adapters)`, bytes, folder: dirname(realFile) }
      const { targets } = adapted
      return { session: await runtime.load(withInputs, sessionOptions), targets }
    })
    const decoder = {
      file,
      session,
      adapters,
      graph,
      demand,
      isRewritten: model !== original,
      ...(shortTextMax !== undefined && { shortTextMax }),
    }
    const embedder = await openEmbedder(options, file, graph)
    if (embedder === undefined) return openCache(options, decoder)
    return closeOnFailure(embedder, () => openCache(options, { ...decoder, embedder }))
  })
}

/** The graph of a file, with caches in the precision in which it computes them. */
async function readDecoderFile(
  file: string,
  { asExported = false }: TextEngineOptions,
  { headDim, slidingWindow }: DecoderConfig,
) {
  // Weights of a rewritten graph are read from the real files: ONNX Runtime refuses links out of
  // its folder, and model caches consist of links.
  const realFile = await realpath(file)
  const read = await readModelFile(realFile)
  const resolved = await resolveWeights(read, { file, realFile })
  const isFixed = asExported || resolved === undefined
  const sized =
    resolved === undefined
      ? read
      : withWholeCaches(
          withHeadDim(
            withUsualNames(withWideIntegers(withWindowLength(resolved, slidingWindow))),
            headDim,
          ),
        )
  const original = isFixed ? sized : (narrowCaches(sized) ?? sized)
  return { realFile, read, original, isFixed }
}

function cacheMemoryOf({ executionProvider, cacheMemory }: TextEngineOptions): 'host' | 'device' {
  return cacheMemory ?? (executionProvider === 'cuda' ? 'device' : 'host')
}

/** The graphs of an encoder and its decoder; undefined for decoder-only models. */
async function findPair(
  { folder, executionProvider, onnxFile }: TextEngineOptions,
  { isEncoderDecoder }: DecoderConfig,
): Promise<EncoderDecoderFiles | undefined> {
  const files = await findEncoderDecoder(folder, {
    suffixes: WEIGHT_SUFFIXES[executionProvider === 'cuda' ? 'cuda' : 'text'],
    ...(onnxFile !== undefined && { onnxFile }),
  })
  if (files !== undefined || !isEncoderDecoder) return files
  throw new ModelLoadError(
    folder,
    'there is no encoder_model with a decoder_model in onnx/ or beside it, as `optimum-cli export onnx --task text2text-generation-with-past` writes them',
  )
}

async function openPair(
  options: TextEngineOptions,
  files: EncoderDecoderFiles,
  { contextLength, vocabSize }: DecoderConfig,
): Promise<TextEngine> {
  const { runtime, slots, executionProvider, intraOpThreads } = options
  const tables = await Promise.all(
    [files.encoderFile, ...files.decoderFiles].map(readTablePositions),
  )
  return openEncoderDecoder({
    runtime,
    files,
    slots,
    vocabSize,
    session: {
      ...(executionProvider && { executionProvider }),
      ...(intraOpThreads !== undefined && { intraOpThreads }),
    },
    waitingMax: WAITING_MAX,
    contextLength: Math.min(
      contextLength ?? CONTEXT_TOKENS_UNKNOWN,
      options.maxContextTokens ?? SOURCE_TOKENS_MAX,
      ...tables,
    ),
  })
}

async function openCache(options: TextEngineOptions, decoder: LoadedDecoder): Promise<TextEngine> {
  const hasCache = decoder.graph.cache.length > 0
  if (cacheMemoryOf(options) === 'host' || !hasCache) return assemble(options, decoder)
  const device = await DeviceCache.open(options.runtime, decoder.session, decoder.graph.cache)
  return closeOnFailure(device, () => {
    return assemble(options, { ...decoder, device })
  })
}

/** The graph beside the decoder that embeds tokens, for a decoder that reads embeddings. */
async function openEmbedder(
  { runtime, executionProvider, intraOpThreads }: TextEngineOptions,
  file: string,
  { embedding }: DecoderGraph,
): Promise<TokenEmbedder | undefined> {
  if (embedding === undefined) return undefined
  const session = await runtime.load(await findCompanion(file, 'embed_tokens'), {
    ...(executionProvider && { executionProvider }),
    ...(intraOpThreads !== undefined && { intraOpThreads }),
  })
  return closeOnFailure(session, () => new TokenEmbedder(runtime, session, embedding))
}

function limitsOf(options: TextEngineOptions): ContextLimits {
  const isOnDevice = cacheMemoryOf(options) === 'device'
  return { ...options, prefillChunk: options.prefillChunk ?? PREFILL_CHUNK, isOnDevice }
}

/** The parts that exist once the model is loaded. */
interface LoadedDecoder {
  readonly file: string
  readonly session: ModelSession
  readonly adapters: AdapterRuns
  readonly graph: DecoderGraph
  readonly demand: ContextDemand
  readonly isRewritten: boolean
  readonly shortTextMax?: number
  readonly embedder?: TokenEmbedder
  readonly device?: DeviceCache
}

async function assemble(options: TextEngineOptions, decoder: LoadedDecoder): Promise<TextEngine> {
  const { slots } = options
  const { session, adapters, graph, demand, shortTextMax, embedder, device } = decoder
  const runLengths = await measureRunLengths(options, decoder)
  const context = chooseContext({
    ...demand,
    ...(runLengths === 'whole' && { fixedBy: 'wholePrompts' }),
  })
  const { contextLength } = context
  const isInPlace = graph.cacheStyle === 'inPlace'
  const chunk = Math.min(options.prefillChunk ?? PREFILL_CHUNK, contextLength)
  const prefillChunk = { any: chunk, whole: contextLength, single: 1 }[runLengths]
  const hasStates = graph.states.length > 0
  // If splitting a text into runs changes its results, drafts would change the outcome. States
  // cannot drop a rejected draft.
  const draftMax = isInPlace && !graph.isRowCoupled && !hasStates ? DRAFT_MAX : 0
  const chunkMax = Math.max(prefillChunk, draftMax + 1)
  const isFixed = !isInPlace || device !== undefined || !CAN_RELEASE_PAGES
  const slotsWanted = isFixed ? slots : (options.slotsMax ?? slots)
  const { slotsMax, statePositions } = chooseSlotsMax(demand, { contextLength, slotsWanted })
  const sizes = { slots: slotsMax, contextLength, chunkMax }
  const engine = new Engine(makeRunner(options, decoder, sizes), {
    slots,
    slotsMax,
    statePositions,
    prefillChunk,
    contextLength,
    reusesPrefixes: runLengths !== 'whole' && !graph.isRowCoupled,
    reusesWholeOnly: hasStates,
    givesAllLogits: graph.givesAllLogits,
    batchesPrompts: batchesPrompts(graph, runLengths),
    draftMax,
    ...(shortTextMax !== undefined && { shortTextMax }),
    waitingMax: WAITING_MAX,
  })
  return {
    contextLength,
    context,
    slotsMax,
    vocabSize: graph.vocabSize,
    ...(graph.embedding !== undefined && { embeddingSize: graph.embedding.size }),
    modelFiles: [decoder.file],
    cachePath: decoder.isRewritten ? 'rewritten' : isInPlace ? 'in place' : 'growing',
    run: (request, runOptions) => engine.run(request, runOptions),
    fitAdapter: (adapter) => adapters.fit(adapter),
    onStep: (listener) => engine.onStep(listener),
    stats: () => engine.stats(),
    async close() {
      await engine.close()
      await adapters.close()
      await device?.close()
      await embedder?.close()
      await session.close()
    },
  }
}

/**
 * The run lengths that a graph supports: for a merged export by its branches, for states as
 * measured. Throws `ModelLoadError` if it cannot run at all, for instance because its operators
 * refuse its sizes.
 */
async function measureRunLengths(
  options: TextEngineOptions,
  { shortTextMax: _longerThanMeasured, ...decoder }: LoadedDecoder,
): Promise<RunLengths> {
  const { file, graph } = decoder
  const { vocabSize, isRowCoupled, hasCacheBranch, states } = graph
  const runner = makeRunner(options, decoder, MEASURED)
  try {
    if (states.length > 0 && !hasCacheBranch) {
      return await findRunLengths(runner, { vocabSize, isExact: !isRowCoupled })
    }
    await tryRuns(runner, vocabSize)
    return hasCacheBranch ? 'whole' : 'any'
  } catch (error) {
    if (!(error instanceof ModelRunError)) throw error
    throw new ModelLoadError(file, `its first run fails: ${error.message.replace(`${file}: `, '')}`)
  } finally {
    runner.close()
  }
}

function makeRunner(
  { runtime }: TextEngineOptions,
  { session, adapters, graph, shortTextMax, embedder, device }: LoadedDecoder,
  sizes: Pick<RunnerOptions, 'slots' | 'contextLength' | 'chunkMax'>,
): ModelRunner {
  const { slots, contextLength } = sizes
  const options: RunnerOptions = {
    runtime,
    session,
    adapters,
    graph,
    ...sizes,
    ...(embedder !== undefined && { embedder }),
    ...(shortTextMax !== undefined && { shortTextMax }),
  }
  const pairs = graph.cache
  if (graph.cacheStyle === 'growing') {
    const memory = device ? new DeviceGrowingMemory(device) : hostGrowingMemory(runtime, pairs)
    return new GrowingRunner(options, memory)
  }
  const cacheOptions = { pairs, slots, contextLength }
  const cache = device
    ? new DeviceSlotCache(device, session.file, cacheOptions)
    : new HostSlotCache(runtime, cacheOptions)
  return new InPlaceRunner(options, cache)
}

/**
 * In-place attention reads a row up to its own end and ignores padding. The operators of a growing
 * cache sum over the padding, in another order than without it.
 */
function batchesPrompts(
  graph: DecoderGraph,
  runLengths: RunLengths,
): SchedulerOptions['batchesPrompts'] {
  if (runLengths === 'single') return 'none'
  if (graph.isRowCoupled || graph.hasCacheBranch || !graph.hasAttentionMask) return 'none'
  if (graph.cacheStyle === 'growing') return graph.hasPositionIds ? 'sameLength' : 'none'
  // A state would include the padding.
  return graph.givesAllLogits && graph.states.length === 0 ? 'any' : 'sameLength'
}
