import type { Model } from '#workers/graph/model.ts'
import type { OperatorMarks } from '#workers/graph/operators.ts'

import { type ContextLimits, readDemand } from './context-demand.ts'
import { type ContextDemand, chooseContext } from './context-length.ts'
import type { DecoderConfig } from './model-files.ts'
import { addCaches } from './rewrite/add-caches.ts'
import type { ProbeContext } from './rewrite/graph-probe.ts'
import { ifRunnable, rewriteDecoder } from './rewrite/rewrite-decoder.ts'

/** A decoder's graph with a cache that is written in place, and the limits of its context. */
interface PreferredDecoder {
  /** Undefined if the graph already writes in place, or cannot be rewritten to do so. */
  readonly rewritten: Model | undefined
  readonly demand: ContextDemand
}

/** Rewrites a recognized decoder that appends to its caches, or has none, to write in place. */
export async function preferInPlace(
  context: ProbeContext,
  limits: ContextLimits,
  decoder: {
    readonly config: DecoderConfig
    readonly original: Model
    readonly operators: OperatorMarks
    /** Whether the graph runs as it is in the file. */
    readonly isFixed: boolean
  },
): Promise<PreferredDecoder> {
  const { config, original, operators, isFixed } = decoder
  const cached = isFixed ? undefined : await ifRunnable(() => addCaches(context, original))
  const model = cached?.model ?? original
  const demand = await readDemand(limits, {
    config,
    file: context.file,
    model,
    operators,
    areCachesAdded: cached !== undefined,
  })
  const { numHeads } = config
  if (isFixed || operators.hasGroupQueryAttention || numHeads === undefined) {
    return { rewritten: undefined, demand }
  }
  const { contextLength } = chooseContext(demand)
  const shape = { numHeads, contextLength, ...(cached && { reference: cached.reference }) }
  return { rewritten: await rewriteDecoder(context, model, shape), demand }
}
