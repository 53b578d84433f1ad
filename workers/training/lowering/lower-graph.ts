import { withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import type { Graph } from '#workers/graph/model.ts'
import { type GraphWriter, operatorKey, type Parts } from '#workers/training/graph-writer.ts'

import { ACTIVATION_PARTS } from './activation-parts.ts'
import { createAttentionParts } from './attention-parts.ts'
import { FUSED_NORM_PARTS } from './fused-norm-parts.ts'
import { QUANTIZED_PRODUCT_PARTS } from './quantized-products.ts'

/** A graph of operators that can be differentiated. */
interface LoweredGraph {
  readonly graph: Graph
  /** Attention reads `position_ids` and `segment_ids`, so that a row may hold several texts. */
  readonly hasSegments: boolean
}

/**
 * Replaces fused operators by their parts and quantized products by products of dequantized
 * weights. Attention sees a whole text without a cache.
 */
export function lowerGraph(graph: Graph, writer: GraphWriter): LoweredGraph {
  const view = new GraphView(graph)
  const attention = createAttentionParts(writer, view)
  const table: Readonly<Record<string, Parts>> = {
    ...ACTIVATION_PARTS,
    ...FUSED_NORM_PARTS,
    ...QUANTIZED_PRODUCT_PARTS,
    'com.microsoft.GroupQueryAttention': attention.groupQuery,
  }
  for (const node of graph.nodes) {
    const key = operatorKey(node)
    const parts = Object.hasOwn(table, key) ? table[key] : undefined
    if (parts === undefined) writer.nodes.push(node)
    else parts(node, writer, view)
  }
  const inputs = [...graph.inputs, ...attention.inputs()]
  const nodes = [...attention.sharedNodes(), ...writer.nodes]
  writer.nodes.length = 0
  const whole = { ...graph, inputs, nodes, constants: [...graph.constants, ...writer.constants] }
  return { graph: withoutUnused(new GraphView(whole)), hasSegments: attention.isUsed() }
}
