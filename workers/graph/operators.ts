import type { GraphNode, Model } from './model.ts'
import { readModelFile } from './read-model.ts'

/** Operators whose presence decides how a model may be run. */
export interface OperatorMarks {
  readonly hasGroupQueryAttention: boolean
  /**
   * A row of a batch can change its neighbours, because dynamic quantization has one scale for all
   * values of a run. Such rows run one by one.
   */
  readonly hasDynamicQuantization: boolean
  /**
   * Masked scores are quantized with a scale that the file states. A masked score is then the
   * lowest value of the scale, so that padding can keep a share of the attention.
   */
  readonly hasQuantizedMask: boolean
}

/** Finds the marks in a file. Throws `ModelLoadError` when it is not an ONNX model. */
export async function readOperators(file: string): Promise<OperatorMarks> {
  return findOperators(await readModelFile(file))
}

/** Finds the marks in a model, including its functions and the branches of its nodes. */
export function findOperators(model: Model): OperatorMarks {
  const nodes = nodesOf(model)
  return {
    hasGroupQueryAttention: nodes.some(({ operator }) => operator === 'GroupQueryAttention'),
    // DynamicQuantizeLinear, …MatMul, …LSTM
    hasDynamicQuantization: nodes.some(({ operator }) => operator.startsWith('DynamicQuantize')),
    hasQuantizedMask: findQuantizedMask(model),
  }
}

const QUANTIZING = /^(QuantizeLinear|QLinear\w+)$/
const ATTENDING = /Softmax|Attention/

/** Whether a value derived from the mask is quantized before the attention that reads it. */
function findQuantizedMask({ graph }: Model): boolean {
  const masks = graph.inputs.filter(({ name }) => name.endsWith('attention_mask'))
  const reached = new Set(masks.map(({ name }) => name))
  // Nodes are in topological order.
  for (const { operator, inputs, outputs } of graph.nodes) {
    if (!inputs.some((name) => reached.has(name)) || ATTENDING.test(operator)) continue
    if (QUANTIZING.test(operator)) return true
    for (const name of outputs) reached.add(name)
  }
  return false
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
