import type { Model } from '#workers/graph/model.ts'
import type { OperatorMarks } from '#workers/graph/operators.ts'
import { positionsOfTables } from '#workers/graph/position-tables.ts'
import { modelFileBytes } from '#workers/runtime/session-pool.ts'

import { type ContextDemand, findMemoryBytes } from './context-length.ts'
import type { DecoderConfig } from './model-files.ts'
import { bytesOfPast, hasCacheInputs, isCacheInput } from './past-inputs.ts'
import { findableWindow } from './rewrite/attention-probe.ts'

const HEADS_UNKNOWN = 32 // if config.json states none
const SCORE_BYTES = 4 // of one head, for each pair of query and position
/** The context length of a model whose config.json states none. */
export const CONTEXT_TOKENS_UNKNOWN = 2048

/** Settings of an engine that limit its context. */
export interface ContextLimits {
  readonly slots: number
  readonly maxContextTokens?: number
  readonly memoryBytes?: number
  readonly prefillChunk: number
  /** Whether the cache is in device memory. */
  readonly isOnDevice: boolean
}

/** The limits that determine the context of a decoder. */
export async function readDemand(
  limits: ContextLimits,
  decoder: {
    readonly config: DecoderConfig
    readonly file: string
    readonly model: Model
    readonly operators: OperatorMarks
    /** Whether the caches were added to a graph that was exported without them. */
    readonly areCachesAdded?: boolean
  },
): Promise<ContextDemand> {
  const { slots, maxContextTokens, memoryBytes = Infinity, prefillChunk } = limits
  const { config, file, model, operators, areCachesAdded = false } = decoder
  const hasCacheBranch = model.graph.inputs.some(({ name }) => name === 'use_cache_branch')
  const hasCache = hasCacheInputs(model)
  // States alone do not limit the length, and such models rarely state the length of their
  // training.
  const lengthUnknown = (hasCache ? undefined : maxContextTokens) ?? CONTEXT_TOKENS_UNKNOWN
  const modelLength = Math.min(
    config.contextLength ?? lengthUnknown,
    operators.hasGroupQueryAttention
      ? Infinity
      : positionsOfGrowing(config, model, !areCachesAdded),
  )
  return {
    modelLength,
    tableLength: positionsOfTables(model),
    wantedMax: maxContextTokens,
    slots,
    memoryBytes: Math.min(memoryBytes, findMemoryBytes()),
    ...bytesOfPast(model),
    runBytes: Math.max(prefillChunk, slots) * (config.numHeads ?? HEADS_UNKNOWN) * SCORE_BYTES,
    weightBytes: await modelFileBytes([file]),
    ...(hasCacheBranch && { fixedBy: 'wholePrompts' }),
    ...(limits.isOnDevice && hasCache && { fixedBy: 'device' }),
  }
}

/** Positions of a graph that may be rewritten. */
function positionsOfGrowing(config: DecoderConfig, { graph }: Model, hasPast: boolean): number {
  const { numHeads = 1, shortTextMax = Infinity, slidingWindow = Infinity } = config
  const headDim = graph.inputs.find(({ name }) => isCacheInput(name))?.dims?.[3]
  const isFound =
    slidingWindow < findableWindow({ numHeads, headDim: Number(headDim ?? 1), hasPast })
  // Such graphs hold the rotary factors of short texts alone. A window that is not found would be
  // lost in rewriting, but no text within it needs it.
  return Math.min(shortTextMax, isFound ? Infinity : slidingWindow)
}

/** A run of a growing cache reads the old one while it writes the new one. */
export function growingDemand(demand: ContextDemand): ContextDemand {
  return { ...demand, positionBytes: 2 * demand.positionBytes, runBytes: 2 * demand.runBytes }
}
