import { realpath } from 'node:fs/promises'
import { basename, dirname } from 'node:path'

import { addAdapters } from '#workers/adapters/adapter-graph.ts'
import { AdapterRuns } from '#workers/adapters/adapter-runs.ts'
import type { Model } from '#workers/graph/model.ts'
import { findOperators, type OperatorMarks } from '#workers/graph/operators.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { WEIGHT_SUFFIXES } from '#workers/models/choose-files.ts'
import {
  type EncoderDecoderFiles,
  findEncoderDecoder,
} from '#workers/models/encoder-decoder-files.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { ExecutionProvider } from '#workers/runtime/session-options.ts'
import { modelFileBytes } from '#workers/runtime/session-pool.ts'

import {
  bytesOfPosition,
  type ContextChoice,
  type ContextDemand,
  chooseContext,
  findMemoryBytes,
  positionsOfTables,
} from './context-length.ts'
import { type DecoderGraph, readDecoderGraph, refuseMaskedStates } from './decoder-graph.ts'
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
import { findableWindow } from './rewrite/attention-probe.ts'
import { rewriteDecoder } from './rewrite/rewrite-decoder.ts'
import type { SchedulerOptions } from './scheduler.ts'
import { HostSlotCache } from './slot-cache.ts'
import { TokenEmbedder } from './token-embedder.ts'
import type { TextEngine } from './types.ts'

/** Options of a text engine. */
export interface TextEngineOptions {
  readonly runtime: Runtime
  /** A folder in the Hugging Face layout. */
  readonly folder: string
  /** File below `onnx/`; the best one there when it is not given. */
  readonly onnxFile?: string
  /** Sequences that run at a time. */
  readonly slots: number
  /** Upper bound of the context in place of the one by memory; never above the model's own. */
  readonly maxContextTokens?: number
  /** Memory of weights and caches; what the process may use when it is not given. */
  readonly memoryBytes?: number
  /** Tokens of a prompt per run. */
  readonly prefillChunk?: number
  /** Sequences that may wait for a slot. */
  readonly waitingMax?: number
  readonly intraOpThreads?: number
  readonly executionProvider?: ExecutionProvider
  /** Where the cache lies; with the execution provider's device when it is not given. */
  readonly cacheMemory?: 'host' | 'device'
  /** Runs the graph as it is in the file, also where its cache could be written in place. */
  readonly asExported?: boolean
}

const PREFILL_CHUNK = 128 // tokens; about as long as a few decode steps of a full engine
const DRAFT_MAX = 8 // tokens; a run of nine costs little more than a run of one
const WAITING_MAX = 4096 // sequences
const SOURCE_TOKENS_MAX = 8192 // an encoder compares all tokens of a source in one run
const HEADS_UNKNOWN = 32 // where config.json does not say
const SCORE_BYTES = 4 // of one head, query and position
const CONTEXT_TOKENS_UNKNOWN = 2048 // where config.json does not say

/** Loads a decoder, or an encoder and its decoder, as an engine. Throws `ModelLoadError`. */
export async function openTextEngine(options: TextEngineOptions): Promise<TextEngine> {
  const { runtime, folder, executionProvider, intraOpThreads, onnxFile } = options
  const config = await readDecoderConfig(folder)
  const files = await findEncoderDecoder(folder, {
    suffixes: WEIGHT_SUFFIXES[executionProvider === 'cuda' ? 'cuda' : 'text'],
    ...(onnxFile !== undefined && { onnxFile }),
  })
  if (files !== undefined) return openPair(options, files, config)
  const file = await findDecoderFile(folder, options)
  // Weights of a rewritten graph are read from the real file: ONNX Runtime refuses links out of its
  // folder, and model caches consist of links.
  const realFile = await realpath(file)
  const original = await readModelFile(realFile)
  const operators = findOperators(original)
  if (executionProvider !== 'cuda') refuseExperts(original, file)
  const demand = await readDemand(options, { config, file: realFile, model: original, operators })
  const inPlace = chooseContext(demand)
  const model = operators.hasGroupQueryAttention
    ? original
    : await preferInPlace(options, original, {
        file: realFile,
        isLink: realFile !== file,
        contextLength: inPlace.contextLength,
        numHeads: config.numHeads,
      })
  const isGrowing = model === original && !operators.hasGroupQueryAttention
  const context = isGrowing ? chooseContext(growingDemand(demand)) : inPlace
  const { contextLength } = context
  if (operators.hasGroupQueryAttention) refuseMaskedStates(original, file)
  const source =
    model === original ? file : { name: file, bytes: writeModel(model), folder: dirname(realFile) }
  const sessionOptions = {
    ...(executionProvider && { executionProvider }),
    ...(intraOpThreads !== undefined && { intraOpThreads }),
  }
  const session = await runtime.load(source, sessionOptions)
  return closeOnFailure(session, async () => {
    const graph = readDecoderGraph(session, model === original ? operators : findOperators(model))
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
      context,
      isRewritten: model !== original,
      ...(shortTextMax !== undefined && { shortTextMax }),
    }
    const embedder = await openEmbedder(options, file, graph)
    if (embedder === undefined) return openCache(options, decoder)
    return closeOnFailure(embedder, () => openCache(options, { ...decoder, embedder }))
  })
}

/** The limits from which the context of a decoder is chosen. */
async function readDemand(
  options: TextEngineOptions,
  decoder: {
    readonly config: DecoderConfig
    readonly file: string
    readonly model: Model
    readonly operators: OperatorMarks
  },
): Promise<ContextDemand> {
  const { slots, maxContextTokens, memoryBytes = Infinity } = options
  const { config, file, model, operators } = decoder
  const hasCacheBranch = model.graph.inputs.some(({ name }) => name === 'use_cache_branch')
  const modelLength = Math.min(
    config.contextLength ?? CONTEXT_TOKENS_UNKNOWN,
    operators.hasGroupQueryAttention ? positionsOfTables(model) : positionsOfGrowing(config, model),
  )
  const chunk = options.prefillChunk ?? PREFILL_CHUNK
  return {
    ...{ modelLength, wantedMax: maxContextTokens, slots },
    memoryBytes: Math.min(memoryBytes, findMemoryBytes()),
    positionBytes: bytesOfPosition(model),
    runBytes: Math.max(chunk, slots) * (config.numHeads ?? HEADS_UNKNOWN) * SCORE_BYTES,
    weightBytes: await modelFileBytes([file]),
    ...(hasCacheBranch && { fixedBy: 'wholePrompts' }),
    ...(cacheMemoryOf(options) === 'device' && { fixedBy: 'device' }),
  }
}

/** Positions of a graph that may be rewritten. */
function positionsOfGrowing(config: DecoderConfig, { graph }: Model): number {
  const { numHeads = 1, shortTextMax = Infinity, slidingWindow = Infinity } = config
  const headDim = graph.inputs.find(({ name }) => name.startsWith('past_key_values.'))?.dims?.[3]
  const isFound = slidingWindow < findableWindow({ numHeads, headDim: Number(headDim ?? 1) })
  // Such graphs hold the rotary factors of short texts alone. A window that is not found would be
  // lost in rewriting, but no text within it needs it.
  return Math.min(shortTextMax, isFound ? Infinity : slidingWindow)
}

/** A run of a growing cache reads the old one while it writes the new one. */
function growingDemand(demand: ContextDemand): ContextDemand {
  return { ...demand, positionBytes: 2 * demand.positionBytes, runBytes: 2 * demand.runBytes }
}

function cacheMemoryOf({ executionProvider, cacheMemory }: TextEngineOptions): 'host' | 'device' {
  return cacheMemory ?? (executionProvider === 'cuda' ? 'device' : 'host')
}

function openPair(
  options: TextEngineOptions,
  files: EncoderDecoderFiles,
  { contextLength, vocabSize }: DecoderConfig,
): Promise<TextEngine> {
  const { runtime, slots, executionProvider, intraOpThreads } = options
  return openEncoderDecoder({
    ...{ runtime, files, slots, vocabSize },
    session: {
      ...(executionProvider && { executionProvider }),
      ...(intraOpThreads !== undefined && { intraOpThreads }),
    },
    waitingMax: options.waitingMax ?? WAITING_MAX,
    contextLength: Math.min(
      contextLength ?? CONTEXT_TOKENS_UNKNOWN,
      options.maxContextTokens ?? SOURCE_TOKENS_MAX,
    ),
  })
}

async function openCache(options: TextEngineOptions, decoder: LoadedDecoder): Promise<TextEngine> {
  if (cacheMemoryOf(options) === 'host') return assemble(options, decoder)
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

/** The model with a cache that is written in place, where it can be rewritten so. */
async function preferInPlace(
  { runtime, executionProvider = 'cpu', asExported = false }: TextEngineOptions,
  model: Model,
  decoder: {
    readonly file: string
    readonly isLink: boolean
    readonly contextLength: number
    readonly numHeads: number | undefined
  },
): Promise<Model> {
  const { file, isLink, contextLength, numHeads } = decoder
  if (asExported || numHeads === undefined) return model
  // The names of further files hold beside the link, not beside the real file.
  if (isLink && hasFurtherFiles(model, basename(file))) return model
  const context = { runtime, file, folder: dirname(file), executionProvider }
  return (await rewriteDecoder(context, model, { numHeads, contextLength })) ?? model
}

/** Whether weights lie in other files than that of the graph. */
function hasFurtherFiles({ graph }: Model, name: string): boolean {
  return graph.constants.some(({ data }) => data.kind === 'file' && data.location !== name)
}

/** The parts that exist once the model is loaded. */
interface LoadedDecoder {
  readonly file: string
  readonly session: ModelSession
  readonly adapters: AdapterRuns
  readonly graph: DecoderGraph
  readonly context: ContextChoice
  readonly isRewritten: boolean
  readonly shortTextMax?: number
  readonly embedder?: TokenEmbedder
  readonly device?: DeviceCache
}

function assemble(options: TextEngineOptions, decoder: LoadedDecoder): TextEngine {
  const { slots } = options
  const { session, adapters, graph, context, shortTextMax, embedder, device } = decoder
  const { contextLength } = context
  const isInPlace = graph.cacheStyle === 'inPlace'
  // The two branches of a merged export take a whole prompt or one token, nothing between.
  const isCuttable = !graph.hasCacheBranch
  const chunk = options.prefillChunk ?? PREFILL_CHUNK
  const prefillChunk = isCuttable ? Math.min(chunk, contextLength) : contextLength
  const hasStates = graph.states.length > 0
  // Where the way in which a text is cut changes its numbers, drafts would change the outcome. A
  // state holds a rejected draft for good.
  const draftMax = isInPlace && !graph.isRowCoupled && !hasStates ? DRAFT_MAX : 0
  const chunkMax = Math.max(prefillChunk, draftMax + 1)
  const engine = new Engine(makeRunner(options, decoder, chunkMax), {
    slots,
    prefillChunk,
    contextLength,
    reusesPrefixes: isCuttable && !graph.isRowCoupled,
    reusesWholeOnly: hasStates,
    givesAllLogits: graph.givesAllLogits,
    batchesPrompts: batchesPrompts(graph),
    draftMax,
    ...(shortTextMax !== undefined && { shortTextMax }),
    waitingMax: options.waitingMax ?? WAITING_MAX,
  })
  return {
    contextLength,
    context,
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

function makeRunner(
  { runtime, slots }: TextEngineOptions,
  { session, adapters, graph, context, shortTextMax, embedder, device }: LoadedDecoder,
  chunkMax: number,
): ModelRunner {
  const { contextLength } = context
  const options: RunnerOptions = {
    ...{ runtime, session, adapters, graph, slots, contextLength, chunkMax },
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
function batchesPrompts(graph: DecoderGraph): SchedulerOptions['batchesPrompts'] {
  if (graph.isRowCoupled || graph.hasCacheBranch || !graph.hasAttentionMask) return 'none'
  if (graph.cacheStyle === 'growing') return graph.hasPositionIds ? 'sameLength' : 'none'
  // A state would take in the padding.
  return graph.givesAllLogits && graph.states.length === 0 ? 'any' : 'sameLength'
}
