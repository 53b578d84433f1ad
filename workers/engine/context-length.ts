import { totalmem } from 'node:os'

/** The limits that determine the context of a model. */
export interface ContextDemand {
  /** The context length that the model was made for. */
  readonly modelLength: number
  /** The positions that the tables of the graph have. */
  readonly tableLength: number
  /** The operator's `maxContextTokens`, which applies regardless of memory. */
  readonly wantedMax: number | undefined
  readonly slots: number
  /** Bytes of one position in the cache of one slot. */
  readonly positionBytes: number
  /** Bytes of the states of one slot, independent of its length. */
  readonly stateBytes: number
  /** Bytes of one position in the working memory of a run. */
  readonly runBytes: number
  /** Why the context cannot exceed `CONTEXT_TOKENS_CERTAIN`, regardless of memory. */
  readonly fixedBy?: 'device' | 'wholePrompts'
  readonly weightBytes: number
  /** The memory of the process. */
  readonly memoryBytes: number
}

/** A context and its reason. */
export interface ContextChoice {
  readonly contextLength: number
  /**
   * The limit that sets the length; `model` when it is the model's own, and `tables` when the graph
   * has fewer positions than the model's files state.
   */
  readonly limitedBy: 'model' | 'tables' | 'maxContextTokens' | 'memory' | 'device' | 'wholePrompts'
  /** Bytes of caches and states when all slots are full. */
  readonly cacheBytesMax: number
}

/**
 * Models of at most this length keep it with any memory, because the system commits memory when it
 * is written.
 */
const CONTEXT_TOKENS_CERTAIN = 8192
/** A length derived from memory is a multiple of this. */
const CONTEXT_TOKENS_STEP = 1024
/**
 * The cache's share of the memory that the weights leave; the rest is for runs and other models.
 */
const CACHE_SHARE = 0.5
/** The states of the slots, and those that a run of all slots returns. */
const STATE_COPIES = 2

/**
 * The model's own length if memory holds all slots at that length, else the largest length that
 * fits.
 */
export function chooseContext(demand: ContextDemand): ContextChoice {
  const { slots, positionBytes, stateBytes } = demand
  const { contextLength, limitedBy } = limitContext(demand)
  const cacheBytesMax = slots * (positionBytes * contextLength + stateBytes)
  return { contextLength, limitedBy, cacheBytesMax }
}

/**
 * The number of slots while texts are shorter than the context, and the positions that take as much
 * memory as the states of one. The reserved addresses of caches never exceed the memory.
 */
export function chooseSlotsMax(
  { slots, positionBytes, stateBytes, memoryBytes }: ContextDemand,
  { contextLength, slotsWanted }: { readonly contextLength: number; readonly slotsWanted: number },
): { readonly slotsMax: number; readonly statePositions: number } {
  // States alone take the same memory for any text.
  if (positionBytes === 0) return { slotsMax: slots, statePositions: 0 }
  const statePositions = Math.ceil((STATE_COPIES * stateBytes) / positionBytes)
  const slotBytes = (contextLength + statePositions) * positionBytes
  const fitting = Math.min(slotsWanted, Math.floor(memoryBytes / slotBytes))
  return { slotsMax: Math.max(fitting, slots), statePositions }
}

function limitContext(demand: ContextDemand): Omit<ContextChoice, 'cacheBytesMax'> {
  const { tableLength, wantedMax, fixedBy } = demand
  const modelLength = Math.min(demand.modelLength, tableLength)
  const whole = tableLength < demand.modelLength ? 'tables' : 'model'
  if (wantedMax !== undefined && wantedMax < modelLength) {
    return { contextLength: wantedMax, limitedBy: 'maxContextTokens' }
  }
  const isCertain = wantedMax !== undefined || modelLength <= CONTEXT_TOKENS_CERTAIN
  if (isCertain) return { contextLength: modelLength, limitedBy: whole }
  if (fixedBy !== undefined) {
    return { contextLength: CONTEXT_TOKENS_CERTAIN, limitedBy: fixedBy }
  }
  const contextLength = Math.max(fitContext(demand), CONTEXT_TOKENS_CERTAIN)
  return contextLength < modelLength
    ? { contextLength, limitedBy: 'memory' }
    : { contextLength: modelLength, limitedBy: whole }
}

function fitContext(demand: ContextDemand): number {
  const { slots, positionBytes, stateBytes, runBytes, memoryBytes, weightBytes } = demand
  const bytes = CACHE_SHARE * Math.max(memoryBytes - weightBytes, 0)
  const rest = bytes - STATE_COPIES * slots * stateBytes
  const fitting = rest / (slots * positionBytes + runBytes)
  return Math.floor(fitting / CONTEXT_TOKENS_STEP) * CONTEXT_TOKENS_STEP
}

/** The memory that this process may use: its container's limit, else that of the machine. */
export function findMemoryBytes(): number {
  // 0 if the limit is unknown, and more than any machine has if there is none.
  const limit = process.constrainedMemory() || Infinity
  return Math.min(limit, totalmem())
}
