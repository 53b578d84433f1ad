import type { Graph, GraphNode } from '#workers/graph/model.ts'

/** The ranks of a graph's tensors, as far as its operators determine them. */
export function findRanks(graph: Graph): ReadonlyMap<string, number> {
  const ranks = new Map<string, number>()
  for (const { name, dims } of [...graph.constants, ...graph.inputs]) {
    if (dims !== undefined) ranks.set(name, dims.length)
  }
  /** The lengths of one-dimensional tensors. */
  const lengths = new Map(graph.constants.map(({ name, dims }) => [name, dims[0] ?? 1]))
  for (const node of graph.nodes) {
    const [output = ''] = node.outputs
    const length = lengthOf(node, { ranks, lengths })
    if (length !== undefined) lengths.set(output, length)
    const lengthAt = (index: number): number | undefined => lengths.get(node.inputs[index] ?? '')
    const rank = rankOf(node, (index) => ranks.get(node.inputs[index] ?? ''), lengthAt)
    if (rank !== undefined) ranks.set(output, rank)
  }
  return ranks
}

type Known = Readonly<Record<'ranks' | 'lengths', ReadonlyMap<string, number>>>

/** The length of a one-dimensional tensor that a node writes. */
function lengthOf(node: GraphNode, { ranks, lengths }: Known): number | undefined {
  const { operator, inputs } = node
  const dims = valueDims(node)
  if (dims !== undefined) return dims[0] ?? 1
  // Unsqueezed scalars: sizes that are concatenated to a shape.
  if (operator === 'Unsqueeze') return ranks.get(inputs[0] ?? '') === 0 ? 1 : undefined
  if (operator !== 'Concat') return undefined
  let sum = 0
  for (const input of inputs) sum += lengths.get(input) ?? Number.NaN
  return Number.isNaN(sum) ? undefined : sum
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
  length: (index: number) => number | undefined,
): number | undefined {
  const all = inputs.map((_name, index) => rank(index))
  if (BROADCAST.has(operator)) {
    return all.every((one) => one !== undefined) ? Math.max(...all) : undefined
  }
  if (SAME.has(operator)) return rank(0)
  if (operator === 'GroupQueryAttention') return 3
  if (operator === 'Shape') return 1
  if (operator === 'Constant') return valueDims({ operator, attributes })?.length
  if (operator === 'Reshape') return length(1)
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
