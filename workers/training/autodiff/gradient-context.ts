import { failure } from '#shared/errors.ts'
import type { GraphView } from '#workers/graph/graph-view.ts'
import { type GraphNode, int } from '#workers/graph/model.ts'
import { type GraphWriter, operatorKey } from '#workers/training/graph-writer.ts'

import { TensorShapes } from './tensor-shapes.ts'

/**
 * Writes the gradients of a node's inputs from those of its outputs. It is called for nodes of
 * which an output has a gradient and an input leads back to a trained tensor.
 */
export type GradientRule = (node: GraphNode, context: GradientContext) => void

/**
 * The gradients of a backward pass. A tensor that several nodes read has the sum of their
 * gradients.
 */
export class GradientContext {
  readonly writer: GraphWriter
  /** The graph that is differentiated. */
  readonly view: GraphView
  readonly #active: ReadonlySet<string>
  readonly #shapes: TensorShapes
  readonly #parts = new Map<string, string[]>()
  readonly #sums = new Map<string, string>()

  constructor(view: GraphView, writer: GraphWriter, active: ReadonlySet<string>) {
    this.view = view
    this.writer = writer
    this.#active = active
    this.#shapes = new TensorShapes(view)
  }

  /** Whether the tensor depends on a trained one; others get no gradient. */
  isActive(tensor: string | undefined): tensor is string {
    return tensor !== undefined && this.#active.has(tensor)
  }

  /** Adds to the gradient of a tensor, which must have its shape. */
  add(tensor: string | undefined, gradient: () => string): void {
    if (!this.isActive(tensor)) return
    const parts = this.#parts.get(tensor)
    if (parts) parts.push(gradient())
    else this.#parts.set(tensor, [gradient()])
  }

  /** Adds a gradient of the shape of a node's output, to which it has broadcast the tensor. */
  addBroadcast(node: GraphNode, tensor: string | undefined, gradient: () => string): void {
    this.#addReduced(node, tensor, { gradient, numIgnored: 0 })
  }

  /** Adds a gradient of matrices, of which a node has broadcast the axes before the last two. */
  addMatrices(node: GraphNode, tensor: string | undefined, gradient: () => string): void {
    this.#addReduced(node, tensor, { gradient, numIgnored: 2 })
  }

  /** The gradient of a tensor; undefined when no trained output depends on it. */
  find(tensor: string | undefined): string | undefined {
    const parts = this.#parts.get(tensor ?? '')
    if (tensor === undefined || parts === undefined) return undefined
    const known = this.#sums.get(tensor)
    if (known !== undefined) return known
    const sum = parts.length === 1 ? (parts[0] as string) : this.writer.emit('Sum', parts)
    this.#sums.set(tensor, sum)
    return sum
  }

  /** The gradient of the first output, the only one of most operators. */
  ofOutput(node: GraphNode): string {
    const [output, ...others] = node.outputs
    const extra = others.find((name) => this.find(name) !== undefined)
    const found = this.find(output)
    if (extra !== undefined || found === undefined) {
      throw untrainable(node, 'the gradient of a further output is needed')
    }
    return found
  }

  /** A tensor of zeros with the shape of another. */
  zerosLike(tensor: string): string {
    return this.writer.emit('ConstantOfShape', [this.writer.shape(tensor)])
  }

  #addReduced(
    node: GraphNode,
    tensor: string | undefined,
    { gradient, numIgnored }: { readonly gradient: () => string; readonly numIgnored: number },
  ): void {
    if (!this.isActive(tensor)) return
    const isEqual = this.#shapes.areEqual(tensor, node.outputs[0] as string, numIgnored)
    this.add(tensor, () => (isEqual ? gradient() : this.#reduceTo(tensor, gradient())))
  }

  /** Sums over the axes that broadcasting has added or stretched; they are known in a run only. */
  #reduceTo(tensor: string, gradient: string): string {
    const { writer, view } = this
    const isScalar = view.constant(tensor)?.dims.length === 0
    if (isScalar) return writer.emit('ReduceSum', [gradient], { attributes: { keepdims: int(0) } })
    const shape = writer.shape(tensor)
    const full = writer.shape(gradient)
    const missing = writer.emit('Sub', [writer.shape(full), writer.shape(shape)])
    const ones = writer.emit('Expand', [writer.ints(1), missing])
    const padded = writer.emit('Concat', [ones, shape], { attributes: { axis: int(0) } })
    const differs = writer.emit('Not', [writer.emit('Equal', [padded, full])])
    const axes = writer.emit('Reshape', [writer.emit('NonZero', [differs]), writer.ints(-1)])
    const sum = writer.emit('ReduceSum', [gradient, axes], {
      attributes: { keepdims: int(1), noop_with_empty_axes: int(1) },
    })
    return writer.emit('Reshape', [sum, shape])
  }
}

/** The refusal of a graph with a node that cannot be differentiated. */
export function untrainable(node: GraphNode, reason: string): Error {
  return failure.invalidRequest(
    `The model cannot be fine-tuned: its operator ${operatorKey(node)} (${node.name || node.outputs[0]}) has no gradient: ${reason}.`,
    { param: 'model', code: 'model_not_supported' },
  )
}
