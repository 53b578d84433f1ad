import type { LinearModule } from '#workers/adapters/target-modules.ts'
import {
  float,
  type Graph,
  type GraphNode,
  type GraphValue,
  int,
  makeValue,
} from '#workers/graph/model.ts'

import type { GraphWriter } from './graph-writer.ts'

/** The trained matrices of one linear layer, which are inputs of the graph. */
export interface LowRankInput {
  readonly module: LinearModule
  /** [rank, in] */
  readonly a: string
  /** [out, rank] */
  readonly b: string
}

/**
 * Adds a low-rank branch to linear layers: y + scale · (x · Aᵀ) · Bᵀ. Their matrices become inputs
 * of the graph.
 */
export function insertLowRank(
  graph: Graph,
  modules: readonly LinearModule[],
  {
    rank,
    scale,
    writer,
  }: { readonly rank: number; readonly scale: number; readonly writer: GraphWriter },
): { readonly graph: Graph; readonly matrices: readonly LowRankInput[] } {
  const byOutput = new Map(modules.map((module) => [module.output, module]))
  const matrices: LowRankInput[] = []
  const rows = new Map<string, string>()
  const rowsOf = ({ input, inSize }: LinearModule): string => {
    const known = rows.get(input) ?? writer.emit('Reshape', [input, writer.ints(-1, inSize)])
    rows.set(input, known)
    return known
  }
  for (const node of graph.nodes) {
    const module = node.outputs.map((name) => byOutput.get(name)).find((found) => found)
    if (module === undefined) {
      writer.nodes.push(node)
      continue
    }
    const base = `${module.output}/base`
    writer.nodes.push(withOutput(node, module.output, base))
    const names = { module, a: `${module.path}.lora_A`, b: `${module.path}.lora_B` }
    matrices.push(names)
    const narrow = writer.emit('Gemm', [rowsOf(module), names.a], TRANSPOSED)
    const wide = writer.emit('Gemm', [narrow, names.b], {
      attributes: { ...TRANSPOSED.attributes, alpha: float(scale) },
    })
    const change = writer.emit('Reshape', [wide, writer.shape(base)])
    writer.emitTo(module.output, 'Add', [base, change])
  }
  const nodes = [...writer.nodes]
  writer.nodes.length = 0
  const inputs: GraphValue[] = matrices.flatMap(({ module, a, b }) => [
    makeValue(a, 'float32', [rank, module.inSize]),
    makeValue(b, 'float32', [module.outSize, rank]),
  ])
  return {
    graph: {
      ...graph,
      nodes,
      constants: [...graph.constants, ...writer.constants],
      inputs: [...graph.inputs, ...inputs],
    },
    matrices,
  }
}

const TRANSPOSED = { attributes: { transB: int(1) } }

function withOutput(node: GraphNode, from: string, to: string): GraphNode {
  return { ...node, outputs: node.outputs.map((name) => (name === from ? to : name)) }
}
