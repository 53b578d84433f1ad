import { GraphView } from './graph-view.ts'
import type { Constant, Graph, GraphNode, Model } from './model.ts'
import { readModelFile } from './read-model.ts'

/** The input of each operator that holds a table with a row for each position. */
const TABLE_INPUTS: ReadonlyMap<string, number> = new Map([
  ['GroupQueryAttention', 7],
  // The standard's operator and that of ONNX Runtime, each with position ids.
  ['.RotaryEmbedding', 1],
  ['com.microsoft.RotaryEmbedding', 2],
])
/** The standard's RotaryEmbedding without positions has tables with rows of tokens. */
const POSITIONS_INPUT = 3

/** Operators that keep the numbers of their first input. */
const PASSING = ['Cast', 'Identity', 'Unsqueeze', 'Squeeze', 'Reshape', 'Expand', 'Slice', 'Tile']

/** Operators before a table or its index that are followed. */
const STEPS_MAX = 64

/**
 * The number of positions in a graph's tables: learned embeddings, rotations and causal masks. A
 * longer text would fail. Infinity without such tables.
 */
export function positionsOfTables({ graph }: Model): number {
  const graphs = graphsIn(graph)
  const nodes = graphs.flatMap((part) => part.nodes)
  const constants = graphs.flatMap((part) => part.constants)
  const view = new GraphView({ ...graph, nodes, constants })
  return nodes.reduce((least, node) => Math.min(least, positionsOf(view, node) ?? least), Infinity)
}

/** The same of a file. Throws `ModelLoadError` when it is not an ONNX model. */
export async function readTablePositions(file: string): Promise<number> {
  return positionsOfTables(await readModelFile(file))
}

/** A graph and the branches of its nodes, which read the constants around them. */
function graphsIn(graph: Graph): Graph[] {
  const branches = graph.nodes.flatMap(({ attributes }) => Object.values(attributes))
  return [graph, ...branches.flatMap((part) => (part.kind === 'graph' ? graphsIn(part.value) : []))]
}

/** The positions that a node has a table for. */
function positionsOf(view: GraphView, node: GraphNode): number | undefined {
  const { operator, domain, inputs } = node
  if (operator === 'Gather' || operator === 'GatherElements') {
    const [table = '', index = ''] = inputs
    const rows = rowsOf(view, table)
    const first = rows === undefined ? undefined : firstOf(view, index)
    return rows !== undefined && first !== undefined ? rows - first : undefined
  }
  if (operator === 'Slice') return slicedRows(view, node)
  const place = TABLE_INPUTS.get(operator) ?? TABLE_INPUTS.get(`${domain}.${operator}`)
  if (place === undefined || (domain === '' && !inputs[POSITIONS_INPUT])) return undefined
  return rowsOf(view, inputs[place] ?? '')
}

/** The rows of a constant table; of the longest one where a branch chooses among several. */
function rowsOf(view: GraphView, name: string): number | undefined {
  const node = view.producer(name)
  if (node?.operator === 'If') {
    const at = node.outputs.indexOf(name)
    const rows = Object.values(node.attributes).map((branch) => {
      if (branch.kind !== 'graph') return undefined
      return sizeOf(constantBefore(view, branch.value.outputs[at]?.name ?? ''))
    })
    return rows.every((count) => count !== undefined) ? Math.max(...rows) : undefined
  }
  return sizeOf(constantBefore(view, name))
}

function sizeOf(table: Constant | undefined): number | undefined {
  return table?.dims.find((size) => size > 1)
}

function constantBefore(view: GraphView, name: string): Constant | undefined {
  let at = name
  for (let passed = 0; passed < STEPS_MAX; passed += 1) {
    const node = view.producer(at)
    if (node === undefined || !PASSING.includes(node.operator)) break
    at = node.inputs[0] ?? ''
  }
  const constant = view.constant(at)
  return constant !== undefined && constant.dims.length >= 2 ? constant : undefined
}

/** The element of the first position in a tensor that counts positions; undefined for others. */
function firstOf(view: GraphView, name: string): number | undefined {
  const seen = new Set<string>()
  const pending = [{ at: name, first: 0 }]
  for (let next = pending.pop(); next && seen.size < STEPS_MAX; next = pending.pop()) {
    const { at, first } = next
    if (at === 'position_ids') return first
    const node = seen.has(at) ? undefined : view.producer(at)
    seen.add(at)
    if (node === undefined) continue
    const [left = '', right = ''] = node.inputs
    const [a, b] = [view.scalar(left), view.scalar(right)]
    if (node.operator === 'Range') return first + (a ?? 0)
    // A mask of ones counts from one.
    if (node.operator === 'CumSum') return first + (isExclusive(node) ? 0 : 1)
    if (node.operator === 'Add') {
      pending.push({ at: left, first: first + (b ?? 0) }, { at: right, first: first + (a ?? 0) })
    } else if (node.operator === 'Sub') pending.push({ at: left, first: first - (b ?? 0) })
    else if (node.operator === 'Mul') pending.push({ at: left, first }, { at: right, first })
    else if (PASSING.includes(node.operator)) pending.push({ at: left, first })
  }
  return undefined
}

function isExclusive({ attributes: { exclusive } }: GraphNode): boolean {
  return exclusive?.kind === 'int' && exclusive.value !== 0n
}

/**
 * The rows of a constant that a graph cuts to the length of the text: rotations, numbers of
 * positions, or a causal mask of equal sides.
 */
function slicedRows(view: GraphView, { inputs }: GraphNode): number | undefined {
  const [table = '', starts = '', ends = '', axes = ''] = inputs
  const dims = constantBefore(view, table)?.dims
  const [axis = 0, ...others] = axes === '' ? [] : (view.numbers(axes) ?? [Number.NaN])
  if (dims === undefined || others.length > 0 || view.constant(ends) !== undefined) return undefined
  const at = axis < 0 ? axis + dims.length : axis
  const isCausal = dims.length === 4 && dims[2] === dims[3]
  const rows = dims[at]
  const isFirst = dims.slice(0, at).every((size) => size === 1)
  const isTable = isCausal || (view.scalar(starts) === 0 && isFirst)
  return isTable && rows !== undefined && rows > 1 ? rows : undefined
}
