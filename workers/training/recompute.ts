import { defined } from '#shared/json.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { type Graph, type GraphNode, int } from '#workers/graph/model.ts'

import { type GraphWriter, operatorKey } from './graph-writer.ts'

/** The passes of a training graph. */
interface Passes {
  /** The graph with the loss; its nodes are in the order of their execution. */
  readonly forward: Graph
  readonly backward: readonly GraphNode[]
  /** Tensors of the forward pass that depend on a trained one. */
  readonly active: ReadonlySet<string>
  /** The gradient of a tensor, if there is one. */
  readonly gradientOf: (tensor: string) => string | undefined
}

/** Operators whose results are kept, because computing them takes most of the time. */
const PRODUCTS = new Set(['MatMul', 'Gemm', 'Conv', 'com.microsoft.FusedMatMul'])

/**
 * The backward pass, reading activations that are computed again instead of kept: everything but
 * the results of products, which take most of the time, and the tensors between layers. Scores of
 * attention, the largest activations, are computed again too (selective activation recomputation,
 * Korthikanti et al., 2022). The copies of a segment between two such tensors depend on the
 * gradient of its end, so that they are computed when the backward pass arrives there.
 */
export function recomputeActivations(passes: Passes, writer: GraphWriter): readonly GraphNode[] {
  const recomputation = new Recomputation(passes, writer)
  return passes.backward.flatMap((node) => {
    const inputs = node.inputs.map((input) => recomputation.copyOf(input))
    return [...writer.nodes.splice(0), { ...node, inputs }]
  })
}

/** Writes the copies of forward nodes that the backward pass reads. */
class Recomputation {
  readonly #passes: Passes
  readonly #writer: GraphWriter
  readonly #view: GraphView
  readonly #segments: Segments
  readonly #scores: ReadonlySet<GraphNode>
  readonly #copies = new Map<string, string>()
  readonly #delayed = new Map<string, string>()

  constructor(passes: Passes, writer: GraphWriter) {
    const { forward, active } = passes
    this.#passes = passes
    this.#writer = writer
    this.#view = new GraphView(forward)
    this.#segments = findSegments(forward, active)
    this.#scores = findScores(this.#view, active)
  }

  /** The tensor that the backward pass reads instead of one of the forward pass. */
  copyOf(tensor: string): string {
    const known = this.#copies.get(tensor)
    if (known !== undefined) return known
    const node = this.#view.producer(tensor)
    if (node === undefined || this.#isKept(tensor, node)) return tensor
    const end = this.#endOf(node)
    if (end === undefined) return tensor
    const inputs = node.inputs.map((input) => {
      const copy = this.copyOf(input)
      return copy === input && this.#isComputed(input) ? this.#after(input, end) : copy
    })
    const outputs = this.#writer.emitMany(node.operator, inputs, {
      count: node.outputs.length,
      domain: node.domain,
      attributes: node.attributes,
    })
    for (const [index, output] of node.outputs.entries()) {
      this.#copies.set(output, defined(outputs[index]))
    }
    return defined(this.#copies.get(tensor))
  }

  #isKept(tensor: string, node: GraphNode): boolean {
    if (!this.#passes.active.has(tensor) || this.#segments.ends.includes(tensor)) return true
    return PRODUCTS.has(operatorKey(node)) && !this.#scores.has(node)
  }

  /** Whether a tensor depends on a trained one, and is none itself. */
  #isComputed(tensor: string): boolean {
    return this.#passes.active.has(tensor) && this.#view.producer(tensor) !== undefined
  }

  /** The gradient of the end of a node's segment. */
  #endOf(node: GraphNode): string | undefined {
    const { ends, segmentOf } = this.#segments
    const end = ends[defined(segmentOf.get(node))]
    return end === undefined ? undefined : this.#passes.gradientOf(end)
  }

  /** The tensor itself, but not before the gradient exists. */
  #after(tensor: string, gradient: string): string {
    const key = `${tensor}\0${gradient}`
    const known = this.#delayed.get(key)
    if (known !== undefined) return known
    const writer = this.#writer
    const zero = writer.ints(0)
    const nothing = writer.emit('Slice', [writer.shape(gradient), zero, zero])
    const shape = writer.emit('Concat', [writer.shape(tensor), nothing], {
      attributes: { axis: int(0) },
    })
    const delayed = writer.emit('Reshape', [tensor, shape])
    this.#delayed.set(key, delayed)
    return delayed
  }
}

/** The segment of each node, and the last tensors of the segments. */
interface Segments {
  readonly segmentOf: ReadonlyMap<GraphNode, number>
  readonly ends: readonly string[]
}

/**
 * Segments of the forward pass, between tensors through which everything flows that depends on
 * trained ones, as the sum after each block of a decoder.
 */
function findSegments({ nodes }: Graph, active: ReadonlySet<string>): Segments {
  const lastUse = new Map<string, number>()
  for (const [at, node] of nodes.entries()) for (const name of node.inputs) lastUse.set(name, at)
  const segmentOf = new Map<GraphNode, number>()
  const ends: string[] = []
  const open = new Set<string>()
  for (const [at, node] of nodes.entries()) {
    segmentOf.set(node, ends.length)
    for (const name of node.outputs) if (active.has(name)) open.add(name)
    for (const name of open) if ((lastUse.get(name) ?? -1) <= at) open.delete(name)
    const [only] = open
    if (open.size === 1 && only !== undefined && node.outputs.includes(only)) ends.push(only)
  }
  return { segmentOf, ends }
}

/** Products that reach a Softmax before another product: the scores of attention. */
function findScores(view: GraphView, active: ReadonlySet<string>): ReadonlySet<GraphNode> {
  const scores = new Set<GraphNode>()
  const seen = new Set<string>()
  const walk = (tensor: string): void => {
    const node = view.producer(tensor)
    if (node === undefined || seen.has(tensor) || !active.has(tensor)) return
    seen.add(tensor)
    if (PRODUCTS.has(operatorKey(node))) scores.add(node)
    else for (const input of node.inputs) walk(input)
  }
  for (const node of view.graph.nodes) {
    if (node.operator === 'Softmax') for (const input of node.inputs) walk(input)
  }
  return scores
}
