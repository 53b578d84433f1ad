import type { GraphView } from '#workers/graph/graph-view.ts'
import type { GraphNode } from '#workers/graph/model.ts'
import { intOf, operatorKey } from '#workers/training/graph-writer.ts'

/** A size: a whole number times symbols such as `batch_size`. */
interface Size {
  readonly factor: number
  readonly symbols: readonly string[]
}

type Sizes = readonly Size[]

/**
 * The shapes of tensors, as far as the graph determines them. A gradient with the shape of its
 * tensor need not be summed over broadcast axes, which takes a dozen operators.
 */
export class TensorShapes {
  readonly #view: GraphView
  readonly #shapes = new Map<string, Sizes>()
  /** The tensor whose shape another one holds. */
  readonly #measured = new Map<string, string>()

  constructor(view: GraphView) {
    const { graph } = view
    this.#view = view
    for (const { name, dims } of graph.inputs) {
      if (dims?.every((dim) => dim !== '')) this.#shapes.set(name, dims.map(sizeOf))
    }
    for (const node of graph.nodes) this.#infer(node)
  }

  /** Whether both shapes are known and equal, but for a number of last axes. */
  areEqual(a: string, b: string, numIgnored = 0): boolean {
    const [first, second] = [this.#find(a), this.#find(b)]
    if (first === undefined || second?.length !== first.length) return false
    const end = first.length - numIgnored
    return keyOf(first.slice(0, end)) === keyOf(second.slice(0, end))
  }

  #find(tensor: string | undefined): Sizes | undefined {
    return this.#shapes.get(tensor ?? '') ?? this.#view.constant(tensor ?? '')?.dims.map(sizeOf)
  }

  #infer(node: GraphNode): void {
    const [output = ''] = node.outputs
    if (node.operator === 'Shape') this.#measured.set(output, node.inputs[0] as string)
    if (node.operator === 'Split') {
      for (const [index, name] of node.outputs.entries()) this.#set(name, this.#part(node, index))
      return
    }
    const key = operatorKey(node)
    if (ELEMENTWISE.has(key)) this.#set(output, this.#broadcast(node.inputs))
    else if (AS_FIRST.has(key)) this.#set(output, this.#find(node.inputs[0]))
    else this.#set(output, this.#moved(node))
  }

  #set(tensor: string, shape: Sizes | undefined): void {
    if (shape !== undefined) this.#shapes.set(tensor, shape)
  }

  #broadcast(inputs: readonly string[]): Sizes | undefined {
    const shapes = inputs.map((input) => this.#find(input))
    const known = shapes.filter((shape) => shape !== undefined)
    return known.length < shapes.length ? undefined : known.reduce(join, [])
  }

  /** Shapes of operators that multiply matrices or move elements. */
  #moved(node: GraphNode): Sizes | undefined {
    const [a, b] = [this.#find(node.inputs[0]), this.#find(node.inputs[1])]
    switch (node.operator) {
      case 'MatMul':
        return a && b && product(a, b)
      case 'Gemm': {
        const row = a?.[intOf(node, 'transA', 0)]
        const column = b?.[1 - intOf(node, 'transB', 0)]
        return row && column && [row, column]
      }
      case 'Gather': {
        const axis = intOf(node, 'axis', 0)
        return a && b && axis >= 0 ? [...a.slice(0, axis), ...b, ...a.slice(axis + 1)] : undefined
      }
      case 'Transpose': {
        const { perm } = node.attributes
        return a && perm?.kind === 'ints' ? pick(a, perm.value.map(Number)) : a?.toReversed()
      }
      case 'Reshape':
        return this.#reshaped(a, node.inputs[1] ?? '')
      case 'Expand':
        return this.#find(this.#measured.get(node.inputs[1] ?? ''))
      case 'ConstantOfShape':
        return this.#find(this.#measured.get(node.inputs[0] ?? ''))
      case 'Unsqueeze': {
        const [axis, ...others] = this.#view.numbers(node.inputs[1] ?? '') ?? []
        const isOne = axis !== undefined && axis >= 0 && others.length === 0
        return a && isOne ? a.toSpliced(axis, 0, ONE) : undefined
      }
      case 'Concat':
        return this.#repeated(node)
      default:
        return undefined
    }
  }

  /** One tensor several times. */
  #repeated({ inputs, attributes: { axis } }: GraphNode): Sizes | undefined {
    const shape = this.#find(inputs[0])
    const at = axis?.kind === 'int' ? Number(axis.value) : 0
    const size = shape?.at(at)
    if (shape === undefined || size === undefined || new Set(inputs).size > 1) return undefined
    return shape.with(at, { ...size, factor: size.factor * inputs.length })
  }

  #part(node: GraphNode, index: number): Sizes | undefined {
    const shape = this.#find(node.inputs[0])
    const size = this.#view.numbers(node.inputs[1] ?? '')?.[index]
    const axis = intOf(node, 'axis', 0)
    return shape && size !== undefined ? shape.with(axis, sizeOf(size)) : undefined
  }

  #reshaped(shape: Sizes | undefined, wanted: string): Sizes | undefined {
    const measured = this.#measured.get(wanted)
    if (measured !== undefined) return this.#find(measured)
    const dims = this.#view.numbers(wanted)
    if (shape === undefined || dims === undefined) return undefined
    const sizes = dims.map((dim, axis) => (dim === 0 ? shape[axis] : sizeOf(dim)))
    const open = dims.indexOf(-1)
    if (open >= 0) {
      const others = sizes.filter((_, axis) => axis !== open)
      if (others.includes(undefined)) return undefined
      sizes[open] = quotient(times(shape), times(others as Sizes))
    }
    return sizes.includes(undefined) ? undefined : (sizes as Sizes)
  }
}

/** Operators whose output has the broadcast shape of their inputs. */
const ELEMENTWISE = new Set([
  ...['Add', 'Sub', 'Mul', 'Div', 'Pow', 'Sum', 'Where', 'Equal', 'Less', 'And', 'Not'],
])
/** Operators whose output has the shape of their first input. */
const AS_FIRST = new Set([
  ...['Neg', 'Exp', 'Log', 'Sqrt', 'Reciprocal', 'Abs', 'Sigmoid', 'Tanh', 'Softplus', 'Relu'],
  ...['CumSum', 'Erf', 'Identity', 'Cast', 'Softmax', 'LogSoftmax', 'LayerNormalization'],
  ...['SimplifiedLayerNormalization', 'RMSNormalization', 'com.microsoft.RotaryEmbedding'],
])

const ONE: Size = { factor: 1, symbols: [] }

function sizeOf(dim: number | string): Size {
  return typeof dim === 'number' ? { factor: dim, symbols: [] } : { factor: 1, symbols: [dim] }
}

function keyOf(sizes: Sizes): string {
  return sizes.map(({ factor, symbols }) => [factor, ...symbols].join('·')).join(',')
}

function isOne({ factor, symbols }: Size): boolean {
  return factor === 1 && symbols.length === 0
}

/** The shape of two tensors that are broadcast to each other; undefined when it is not known. */
function join(a: Sizes | undefined, b: Sizes | undefined): Sizes | undefined {
  if (a === undefined || b === undefined) return undefined
  const rank = Math.max(a.length, b.length)
  const sizes = Array.from({ length: rank }, (_, axis) => {
    const [one, other] = [a[axis + a.length - rank] ?? ONE, b[axis + b.length - rank] ?? ONE]
    if (isOne(one) || keyOf([one]) === keyOf([other])) return other
    return isOne(other) ? one : undefined
  })
  return sizes.includes(undefined) ? undefined : (sizes as Sizes)
}

function product(a: Sizes, b: Sizes): Sizes | undefined {
  const [rows, columns] = [a.at(-2), b.at(-1)]
  const batch = join(a.slice(0, -2), b.slice(0, -2))
  return batch && rows && columns && b.length > 1 ? [...batch, rows, columns] : undefined
}

function pick(sizes: Sizes, order: readonly number[]): Sizes | undefined {
  const picked = order.map((axis) => sizes[axis])
  return picked.includes(undefined) ? undefined : (picked as Sizes)
}

function times(sizes: Sizes): Size {
  return {
    factor: sizes.reduce((total, { factor }) => total * factor, 1),
    symbols: sizes.flatMap(({ symbols }) => symbols).toSorted(),
  }
}

function quotient(whole: Size, part: Size): Size | undefined {
  const symbols = [...whole.symbols]
  for (const symbol of part.symbols) {
    const at = symbols.indexOf(symbol)
    if (at < 0) return undefined
    symbols.splice(at, 1)
  }
  const factor = whole.factor / part.factor
  return Number.isInteger(factor) ? { factor, symbols } : undefined
}
