import type { Graph, GraphNode } from '#workers/graph/model.ts'

/** The ranks of a graph's tensors, as far as its operators determine them. */
export function findRanks(graph: Graph): ReadonlyMap<string, number> {
  const ranks = new Map<string, number>()
  for (const { name, dims } of [...graph.constants, ...graph.inputs]) {
    if (dims !== undefined) ranks.set(name, dims.length)
  }
  const constants = new Map(graph.constants.map(({ name, dims }) => [name, dims]))
  const producers = new Map(graph.nodes.map((node) => [node.outputs[0] as string, node]))
  /** The length of a one-dimensional tensor. */
  const lengthOf = (name: string): number | undefined => {
    const dims = constants.get(name) ?? valueDims(producers.get(name))
    if (dims !== undefined) return dims[0] ?? 1
    const producer = producers.get(name)
    // Unsqueezed scalars: sizes that are concatenated to a shape.
    if (producer?.operator === 'Unsqueeze') {
      return ranks.get(producer.inputs[0] as string) === 0 ? 1 : undefined
    }
    const parts = producer?.operator === 'Concat' ? producer.inputs.map(lengthOf) : [undefined]
    return parts.reduce(
      (sum, part) => (part === undefined || sum === undefined ? undefined : sum + part),
      0,
    )
  }
  for (const node of graph.nodes) {
    const rank = rankOf(node, (index) => ranks.get(node.inputs[index] ?? ''), lengthOf)
    if (rank !== undefined) ranks.set(node.outputs[0] as string, rank)
  }
  return ranks
}

const BROADCAST = new Set(['Add', 'Sub', 'Mul', 'Div', 'Pow', 'MatMul'])
const SAME = new Set([
  ...['Cast', 'Identity', 'Sigmoid', 'Tanh', 'Erf', 'Gelu', 'FastGelu', 'Sqrt', 'Relu', 'Neg'],
  ...['LayerNormalization', 'SimplifiedLayerNormalization', 'SkipLayerNormalization'],
  ...['SkipSimplifiedLayerNormalization', 'RMSNormalization', 'Reciprocal', 'QuickGelu'],
  ...['MatMulNBits', 'QuantizeLinear', 'DequantizeLinear', 'DynamicQuantizeMatMul', 'Transpose'],
  ...['MatMulInteger', 'DynamicQuantizeLinear', 'Softmax', 'Slice', 'Split', 'Concat', 'Clip'],
])

function rankOf(
  { operator, inputs, attributes }: GraphNode,
  rank: (index: number) => number | undefined,
  lengthOf: (name: string) => number | undefined,
): number | undefined {
  const all = inputs.map((_name, index) => rank(index))
  if (BROADCAST.has(operator)) {
    return all.every((one) => one !== undefined) ? Math.max(...all) : undefined
  }
  if (SAME.has(operator)) return rank(0)
  if (operator === 'GroupQueryAttention') return 3
  if (operator === 'Shape') return 1
  if (operator === 'Constant') return valueDims({ operator, attributes })?.length
  if (operator === 'Reshape') return lengthOf(inputs[1] ?? '')
  const [data, indices] = all
  if (operator === 'Gather' && data !== undefined && indices !== undefined) {
    return data - 1 + indices
  }
  const { keepdims } = attributes
  const keeps = keepdims?.kind !== 'int' || keepdims.value === 1n
  return operator === 'ReduceMean' && keeps ? rank(0) : undefined
}

/** The shape of the value of a Constant node. */
function valueDims(
  node: Pick<GraphNode, 'operator' | 'attributes'> | undefined,
): readonly number[] | undefined {
  if (node?.operator !== 'Constant') return undefined
  const { value, value_int, value_float, value_ints, value_floats } = node.attributes
  if (value?.kind === 'tensor') return value.value.dims
  if (value_int !== undefined || value_float !== undefined) return []
  if (value_ints?.kind === 'ints') return [value_ints.value.length]
  return value_floats?.kind === 'floats' ? [value_floats.value.length] : undefined
}
