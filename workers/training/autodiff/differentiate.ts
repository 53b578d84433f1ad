import { GraphView } from '#workers/graph/graph-view.ts'
import type { Graph, GraphNode } from '#workers/graph/model.ts'
import { type GraphWriter, intOf } from '#workers/training/graph-writer.ts'

import { GradientContext, untrainable } from './gradient-context.ts'
import { findRule } from './rules.ts'

/** The function and its variables. */
interface Differentiation {
  /** Gradients of some tensors of the graph, by name; usually that of the loss. */
  readonly seeds: ReadonlyMap<string, string>
  /** Inputs or constants of the graph whose gradients are wanted. */
  readonly trained: readonly string[]
}

/** The result of a differentiation. */
interface Gradients {
  /** The gradient of a tensor; undefined if the seeds do not depend on it. */
  of(tensor: string): string | undefined
  /** Tensors that depend on a trained one. */
  readonly active: ReadonlySet<string>
}

/**
 * Reverse-mode differentiation: writes the nodes that compute the gradients of the trained tensors,
 * walking the graph from its end to its start. Each node adds the gradients of its inputs. Tensors
 * that do not depend on a trained one get none, so that frozen weights cost nothing.
 *
 * Throws an `invalidRequest` naming the first operator without a rule.
 */
export function differentiate(
  graph: Graph,
  { seeds, trained }: Differentiation,
  writer: GraphWriter,
): Gradients {
  const active = activeTensors(graph, trained)
  const context = new GradientContext(new GraphView(graph), writer, active)
  for (const [tensor, gradient] of seeds) context.add(tensor, () => gradient)
  for (const node of graph.nodes.toReversed()) {
    const leadsBack = node.inputs.some((input) => context.isActive(input))
    const counts = node.outputs.some((output) => context.find(output) !== undefined)
    if (!leadsBack || !counts) continue
    const rule = findRule(node)
    if (rule === undefined) throw untrainable(node, 'there is no rule for it')
    rule(node, context)
  }
  return { of: (tensor) => context.find(tensor), active }
}

/** The tensors that depend on a trained one by a function with a derivative. */
function activeTensors(graph: Graph, trained: readonly string[]): ReadonlySet<string> {
  const active = new Set(trained)
  for (const node of graph.nodes) {
    const depends = node.inputs.some((input) => active.has(input))
    if (!depends || isStepwise(node)) continue
    for (const output of node.outputs) active.add(output)
  }
  return active
}

const FLOAT32 = 1
/** Operators whose output does not change with small changes of their inputs. */
const STEPWISE = new Set([
  ...['Shape', 'Size', 'ArgMax', 'ArgMin', 'NonZero', 'IsNaN', 'IsInf', 'Sign'],
  ...['Equal', 'Less', 'LessOrEqual', 'Greater', 'GreaterOrEqual', 'ConstantOfShape'],
])

function isStepwise(node: GraphNode): boolean {
  if (node.operator === 'Cast') return intOf(node, 'to', FLOAT32) !== FLOAT32
  return STEPWISE.has(node.operator)
}
