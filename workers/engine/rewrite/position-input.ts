import { defined } from '#shared/json.ts'
import { ancestryOf, withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { type Graph, int64Constant, type Model, makeNode, makeValue } from '#workers/graph/model.ts'

import { isCacheInput } from '../past-inputs.ts'
import { emptyFeeds, type HeadShape } from './attention-probe.ts'
import { openProbe, type ProbeContext, type ProbeResult } from './graph-probe.ts'

/** Runs that distinguish positions from other numbers. */
const CASES = [
  { past: 0, length: 4 },
  { past: 6, length: 3 },
] as const

const CANDIDATES_MAX = 200

/**
 * Replaces the positions that a graph counts from its caches or its mask by an input. `model` is
 * the original, which is run to see which tensors are positions; `graph` is the rewritten one.
 */
export async function takePositions(
  context: ProbeContext,
  model: Model,
  graph: Graph,
  shape: HeadShape,
): Promise<Graph> {
  const view = new GraphView(graph)
  const candidates = countedTensors(view)
  const found: { name: string; first: number }[] = []
  for (const name of candidates.slice(0, CANDIDATES_MAX)) {
    // What follows from positions that were found is computed from them.
    const { nodes } = ancestryOf(view, [name], new Set(found.map((other) => other.name)))
    if (!nodes.some(({ inputs }) => inputs.some(isCounted))) continue
    const first = await firstPosition(context, model, name, shape)
    if (first !== undefined) found.push({ name, first })
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
      ],
      nodes: [
        ...found.map(({ name }) =>
          makeNode('Add', ['position_ids', `rewrite/first/${name}`], name),
        ),
        ...graph.nodes.filter(({ outputs }) => !outputs.some((name) => replaced.has(name))),
      ],
    }),
  )
}

/** Whether a tensor is one from which positions are counted. */
function isCounted(name: string): boolean {
  return isCacheInput(name) || name === 'attention_mask'
}

/** Tensors that follow from caches or mask without an attention, in topological order. */
function countedTensors({ graph }: GraphView): string[] {
  const counted = new Set<string>()
  for (const { operator, name, inputs, outputs } of graph.nodes) {
    if (operator === 'GroupQueryAttention' || name.startsWith('rewrite/')) continue
    if (!inputs.some((input) => isCounted(input) || counted.has(input))) continue
    for (const output of outputs) counted.add(output)
  }
  return [...counted]
}

/** The number that added to a position gives the tensor; undefined for tensors of other content. */
async function firstPosition(
  context: ProbeContext,
  model: Model,
  name: string,
  shape: HeadShape,
): Promise<number | undefined> {
  const probe = await openProbe(context, model, { wanted: [name], boundary: {} })
  if (probe === undefined) return undefined
  try {
    const firsts: (number | undefined)[] = []
    for (const { past, length } of CASES) {
      const [result] = await probe.run(emptyFeeds(shape, past, length))
      firsts.push(firstOf(defined(result), past, length))
    }
    const [first] = firsts
    return firsts.every((other) => other === first) ? first : undefined
  } finally {
    await probe.close()
  }
}

function firstOf(
  { type, dims, values }: ProbeResult,
  past: number,
  length: number,
): number | undefined {
  if (type !== 'int64' || dims.join() !== `1,${length}`) return undefined
  const first = defined(values[0]) - past
  return values.every((value, index) => value === first + past + index) ? first : undefined
}
