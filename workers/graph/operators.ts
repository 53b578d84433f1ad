import type { GraphNode, Model } from './model.ts'
import { readModelFile } from './read-model.ts'

/** Operators whose presence decides how a model may be run. */
export interface OperatorMarks {
  readonly hasGroupQueryAttention: boolean
  readonly hasDynamicQuantization: boolean
}

/** Finds them in a file. Throws `ModelLoadError` when it is no ONNX model. */
export async function readOperators(file: string): Promise<OperatorMarks> {
  return findOperators(await readModelFile(file))
}

/**
 * Whether a row of a batch can change its neighbours: dynamic quantization has one scale for all
 * values of a run. Such rows run one by one.
 */
export async function areRowsCoupled(files: readonly string[]): Promise<boolean> {
  const marks = await Promise.all(files.map(readOperators))
  return marks.some(({ hasDynamicQuantization }) => hasDynamicQuantization)
}

/** Finds them in a model, its functions and the branches of its nodes. */
export function findOperators(model: Model): OperatorMarks {
  const nodes = nodesOf(model)
  return {
    hasGroupQueryAttention: nodes.some(({ operator }) => operator === 'GroupQueryAttention'),
    // DynamicQuantizeLinear, …MatMul, …LSTM
    hasDynamicQuantization: nodes.some(({ operator }) => operator.startsWith('DynamicQuantize')),
  }
}

/** The nodes of a model, of its functions and of the branches of its nodes. */
export function nodesOf(model: Model): readonly GraphNode[] {
  return [model.graph, ...model.functions].flatMap((graph) => allNodes(graph.nodes))
}

function allNodes(nodes: readonly GraphNode[]): GraphNode[] {
  return nodes.flatMap((node) => [
    node,
    ...Object.values(node.attributes).flatMap((attribute) => {
      return attribute.kind === 'graph' ? allNodes(attribute.value.nodes) : []
    }),
  ])
}
