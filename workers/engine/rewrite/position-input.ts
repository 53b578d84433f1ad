import { defined } from '#shared/json.ts'
import { isCacheInput } from '#workers/engine/past-inputs.ts'
import { ancestryOf, withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Graph,
  type GraphNode,
  int64Constant,
  type Model,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'

import { openProbe, type ProbeContext, type ProbeResult } from './graph-probe.ts'
import { emptyFeeds, type HeadShape } from './probe-feeds.ts'

/** Runs whose positions can be distinguished from other numbers. */
const CASES = [
  { past: 0, length: 4 },
  { past: 6, length: 3 },
] as const
/** The same for graphs that compute only whole texts. */
const WHOLE_CASES = [
  { past: 0, length: 4 },
  { past: 0, length: 3 },
] as const

const CANDIDATES_MAX = 200
/** Indexes at which positions of one row may have an added axis. */
const AXES = [1, 2] as const

/**
 * Replaces the positions that a graph counts from its caches or its mask by an input. `model` is
 * the original, which is run to find the tensors with positions; `graph` is the rewritten one.
 */
export async function takePositions(
  context: ProbeContext,
  model: Model,
  graph: Graph,
  shape: HeadShape,
): Promise<Graph> {
  const view = new GraphView(graph)
  const candidates = countedTensors(view, shape)
  const found: Positions[] = []
  for (const name of candidates.slice(0, CANDIDATES_MAX)) {
    // Tensors that depend on found positions are computed from them.
    const { nodes } = ancestryOf(view, [name], new Set(found.map((other) => other.name)))
    if (!nodes.some((node) => isCounting(node, shape))) continue
    const positions = await findPositions(context, model, name, shape)
    if (positions !== undefined) found.push(positions)
  }
  const replaced = new Set(found.map(({ name }) => name))
  const hasInput = graph.inputs.some(({ name }) => name === 'position_ids')
  const input = makeValue('position_ids', 'int64', ['batch_size', 'sequence_length'])
  return withoutUnused(
    new GraphView({
      ...graph,
      inputs: hasInput ? graph.inputs : [...graph.inputs, input],
      constants: [
        ...graph.constants,
        ...found.map(({ name, first }) => int64Constant(`rewrite/first/${name}`, [first])),
        ...AXES.map((axis) => int64Constant(`rewrite/axis_${axis}`, [axis])),
      ],
      nodes: [
        ...found.flatMap(positionNodes),
        ...graph.nodes.filter(({ outputs }) => !outputs.some((name) => replaced.has(name))),
      ],
    }),
  )
}

/** A tensor of positions. */
interface Positions {
  readonly name: string
  /** The element minus its position. */
  readonly first: number
  /** The axis of one element in [batch, length, 1] or [batch, 1, length]. */
  readonly addedAxis: 1 | 2 | undefined
}

function positionNodes({ name, addedAxis }: Positions): GraphNode[] {
  const sum = addedAxis === undefined ? name : `rewrite/row/${name}`
  const add = makeNode('Add', ['position_ids', `rewrite/first/${name}`], sum)
  if (addedAxis === undefined) return [add]
  return [add, makeNode('Unsqueeze', [sum, `rewrite/axis_${addedAxis}`], name)]
}

/**
 * Whether a node may count positions: from caches or the mask, or, if each run has a whole text,
 * from the number of tokens.
 */
function isCounting({ operator, inputs }: GraphNode, { hasPast }: HeadShape): boolean {
  if (!hasPast && operator === 'Range') return true
  return inputs.some((name) => isCacheInput(name) || name === 'attention_mask')
}

/** Tensors computed from such nodes without an attention, in topological order. */
function countedTensors({ graph }: GraphView, shape: HeadShape): string[] {
  const counted = new Set<string>()
  for (const node of graph.nodes) {
    const { operator, name, inputs, outputs } = node
    if (operator === 'GroupQueryAttention' || name.startsWith('rewrite/')) continue
    if (!isCounting(node, shape) && !inputs.some((input) => counted.has(input))) continue
    for (const output of outputs) counted.add(output)
  }
  return [...counted]
}

/** Runs the model to find the positions in a tensor; undefined if it has other content. */
async function findPositions(
  context: ProbeContext,
  model: Model,
  name: string,
  shape: HeadShape,
): Promise<Positions | undefined> {
  const probe = await openProbe(context, model, { wanted: [name], boundary: {} })
  if (probe === undefined) return undefined
  try {
    const found: (Positions | undefined)[] = []
    for (const { past, length } of shape.hasPast ? CASES : WHOLE_CASES) {
      const [result] = await probe.run(emptyFeeds(shape, past, length))
      found.push(positionsOf(name, defined(result), past, length))
    }
    const [first] = found
    const isSame = found.every((other) => {
      return other?.first === first?.first && other?.addedAxis === first?.addedAxis
    })
    return isSame ? first : undefined
  } finally {
    await probe.close()
  }
}

function positionsOf(
  name: string,
  { type, dims, values }: ProbeResult,
  past: number,
  length: number,
): Positions | undefined {
  const addedAxis = AXES.find((axis) => dims.join() === [1, length].toSpliced(axis, 0, 1).join())
  const isRow = dims.join() === `1,${length}`
  if (type !== 'int64' || (addedAxis === undefined && !isRow)) return undefined
  const first = defined(values[0]) - past
  const isCounted = values.every((value, index) => value === first + past + index)
  return isCounted ? { name, first, addedAxis } : undefined
}
