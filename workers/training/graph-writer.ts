import type { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Attribute,
  type Constant,
  type GraphNode,
  int,
  int64Constant,
  ints,
  makeConstant,
  makeNode,
} from '#workers/graph/model.ts'

/** The parts of a node beyond its operator and inputs. */
interface NodeParts {
  readonly domain?: string
  readonly attributes?: Readonly<Record<string, Attribute>>
}

/** Since this version reductions take their axes as an input. */
const REDUCTIONS_BY_INPUT = 18

/** Collects nodes and constants; every new tensor has a name that no other tensor has. */
export class GraphWriter {
  readonly nodes: GraphNode[] = []
  /** The version of the standard operators. */
  readonly opset: number
  readonly #prefix: string
  readonly #constants = new Map<string, Constant>()
  #count = 0

  constructor(prefix: string, opset: number) {
    this.#prefix = prefix
    this.opset = opset
  }

  get constants(): readonly Constant[] {
    return [...this.#constants.values()]
  }

  /** A node with one output, whose name is returned. */
  emit(operator: string, inputs: readonly string[], parts: NodeParts = {}): string {
    return this.emitTo(this.#nextName(operator), operator, inputs, parts)
  }

  /** A node that writes a given tensor. */
  emitTo(
    output: string,
    operator: string,
    inputs: readonly string[],
    parts: NodeParts = {},
  ): string {
    this.nodes.push(makeNode(operator, inputs, output, parts))
    return output
  }

  /** A node with several outputs. */
  emitMany(
    operator: string,
    inputs: readonly string[],
    { count, ...parts }: NodeParts & { readonly count: number },
  ): string[] {
    const outputs = Array.from({ length: count }, () => this.#nextName(operator))
    this.nodes.push(makeNode(operator, inputs, outputs, parts))
    return outputs
  }

  /** A list of whole numbers. */
  ints(...values: readonly number[]): string {
    return this.#constant(`ints/${values.join('_')}`, (name) => int64Constant(name, values))
  }

  /** A single number without axes. */
  scalar(value: number): string {
    return this.#constant(`scalar/${value}`, (name) =>
      makeConstant(name, 'float32', [], Float32Array.of(value)),
    )
  }

  /** A single byte without axes. */
  byte(value: number): string {
    return this.#constant(`byte/${value}`, (name) =>
      makeConstant(name, 'uint8', [], Uint8Array.of(value)),
    )
  }

  /** Takes a constant over under its own name. */
  adopt(constant: Constant): void {
    this.#constants.set(constant.name, constant)
  }

  /** The mean over the last axis, which stays with size 1. */
  meanOfLast(tensor: string): string {
    return this.#reduceLast('ReduceMean', tensor, this.opset >= REDUCTIONS_BY_INPUT)
  }

  /** The sum over the last axis, which stays with size 1. */
  sumOfLast(tensor: string): string {
    return this.#reduceLast('ReduceSum', tensor, true)
  }

  /** Whole-number sizes of a tensor. */
  shape(tensor: string): string {
    return this.emit('Shape', [tensor])
  }

  #reduceLast(operator: string, tensor: string, isByInput: boolean): string {
    return isByInput
      ? this.emit(operator, [tensor, this.ints(-1)], { attributes: { keepdims: int(1) } })
      : this.emit(operator, [tensor], { attributes: { axes: ints(-1), keepdims: int(1) } })
  }

  #constant(key: string, make: (name: string) => Constant): string {
    const name = `${this.#prefix}/${key}`
    if (!this.#constants.has(name)) this.#constants.set(name, make(name))
    return name
  }

  #nextName(operator: string): string {
    this.#count += 1
    return `${this.#prefix}/${operator}_${this.#count}`
  }
}

/** Writes the operators that a fused one consists of; they write the same outputs. */
export type Parts = (node: GraphNode, writer: GraphWriter, view: GraphView) => void

/** The value of a whole-number attribute. */
export function intOf({ attributes }: GraphNode, name: string, fallback: number): number {
  const attribute = attributes[name]
  return attribute?.kind === 'int' ? Number(attribute.value) : fallback
}

/** The value of a floating-point attribute. */
export function floatOf({ attributes }: GraphNode, name: string, fallback: number): number {
  const attribute = attributes[name]
  return attribute?.kind === 'float' ? attribute.value : fallback
}

/** An operator with its domain, as tables name it. */
export function operatorKey({ domain, operator }: GraphNode): string {
  return domain === '' || domain === 'ai.onnx' ? operator : `${domain}.${operator}`
}
