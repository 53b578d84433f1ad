import { type GraphView, outerNames } from './graph-view.ts'
import type { Graph, GraphNode } from './model.ts'

/** The part of a graph that computes some tensors. */
interface Ancestry {
  /** In topological order. */
  readonly nodes: readonly GraphNode[]
  /** Constants of the graph that they read. */
  readonly constants: Graph['constants']
  /** Boundary tensors and inputs of the graph that they read. */
  readonly inputs: readonly string[]
}

/**
 * The part of a graph that computes the wanted tensors from others, the boundary. Nodes before the
 * boundary are excluded.
 */
export function ancestryOf(
  view: GraphView,
  wanted: readonly string[],
  boundary: ReadonlySet<string> = new Set(),
): Ancestry {
  const seen = new Set<string>()
  const nodes = new Set<GraphNode>()
  const pending = [...wanted]
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (name === '' || seen.has(name)) continue
    seen.add(name)
    const node = boundary.has(name) ? undefined : view.producer(name)
    if (node === undefined) continue
    nodes.add(node)
    pending.push(...node.inputs, ...outerNames(node))
  }
  const { graph } = view
  const constants = graph.constants.filter(({ name }) => seen.has(name) && !boundary.has(name))
  const known = new Set(constants.map(({ name }) => name))
  const inputs = [...seen].filter((name) => {
    return boundary.has(name) || (view.producer(name) === undefined && !known.has(name))
  })
  return { nodes: graph.nodes.filter((node) => nodes.has(node)), constants, inputs }
}

/** A graph without nodes, constants and inputs that its outputs do not depend on. */
export function withoutUnused(view: GraphView): Graph {
  const { graph } = view
  const { nodes, constants, inputs } = ancestryOf(
    view,
    graph.outputs.map(({ name }) => name),
  )
  const read = new Set(inputs)
  return { ...graph, nodes, constants, inputs: graph.inputs.filter(({ name }) => read.has(name)) }
}

/** Nodes in topological order, except those of a cycle. */
export function sorted(nodes: readonly GraphNode[]): GraphNode[] {
  const producers = new Map(
    nodes.flatMap((node) => node.outputs.map((name) => [name, node] as const)),
  )
  const seen = new Set<GraphNode>()
  const order: GraphNode[] = []
  const visit = (
    node: GraphNode,
  ): { readonly node: GraphNode; readonly sources: Iterator<GraphNode> } => {
    seen.add(node)
    const names = [...node.inputs, ...outerNames(node)]
    const sources = names.flatMap((name) => producers.get(name) ?? [])
    return { node, sources: sources.values() }
  }
  for (const root of nodes) {
    const stack = seen.has(root) ? [] : [visit(root)]
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const { value: source } = top.sources.next()
      if (source === undefined) {
        stack.pop()
        order.push(top.node)
      } else if (!seen.has(source)) stack.push(visit(source))
    }
  }
  return order
}

/**
 * A graph with renamed tensors, including its inputs and outputs. Undefined when the branches of a
 * node read one of them, because names in branches are not changed.
 */
export function renameTensors(graph: Graph, names: ReadonlyMap<string, string>): Graph | undefined {
  if (graph.nodes.some((node) => outerNames(node).some((name) => names.has(name)))) return undefined
  const rename = (name: string): string => names.get(name) ?? name
  const renamed = <Named extends { readonly name: string }>(values: readonly Named[]): Named[] =>
    values.map((value) => ({ ...value, name: rename(value.name) }))
  return {
    ...graph,
    nodes: graph.nodes.map((node) => ({
      ...node,
      inputs: node.inputs.map(rename),
      outputs: node.outputs.map(rename),
    })),
    constants: renamed(graph.constants),
    inputs: renamed(graph.inputs),
    outputs: renamed(graph.outputs),
  }
}

/**
 * The source of a tensor that is a transposition between [batch, heads, length, size] and [batch,
 * length, heads, size].
 */
export function sourceOfTranspose(view: GraphView, tensor: string): string | undefined {
  const node = view.producer(view.source(tensor))
  return node && isHeadTranspose(node) ? node.inputs[0] : undefined
}

/** The same in the other direction, where a tensor is used by that alone. */
export function transposeOf(view: GraphView, tensor: string): string | undefined {
  const users = view.consumers(tensor)
  const [node] = users
  return users.length === 1 && node && isHeadTranspose(node) ? node.outputs[0] : undefined
}

function isHeadTranspose({ operator, attributes }: GraphNode): boolean {
  const { perm } = attributes
  return operator === 'Transpose' && perm?.kind === 'ints' && perm.value.join() === '0,2,1,3'
}
