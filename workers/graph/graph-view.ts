import { countElements, ELEMENT_TYPES, findElementType } from '#workers/tensor/element-type.ts'

import type { Constant, Graph, GraphNode } from './model.ts'

/** Finds the producers and consumers of a graph's tensors. */
export class GraphView {
  readonly graph: Graph
  readonly #producers = new Map<string, GraphNode>()
  readonly #consumers = new Map<string, GraphNode[]>()
  readonly #constants = new Map<string, Constant>()
  readonly #sources = new Map<string, string>()

  constructor(graph: Graph) {
    this.graph = graph
    for (const constant of graph.constants) this.#constants.set(constant.name, constant)
    for (const node of graph.nodes) {
      for (const name of node.outputs) this.#producers.set(name, node)
      for (const name of new Set([...node.inputs, ...outerNames(node)])) {
        const known = this.#consumers.get(name)
        if (known) known.push(node)
        else this.#consumers.set(name, [node])
      }
      const value = node.operator === 'Constant' ? constantOf(node) : undefined
      if (value) this.#constants.set(value.name, value)
    }
  }

  /** The node that writes a tensor; undefined for inputs and constants of the graph. */
  producer(name: string): GraphNode | undefined {
    return this.#producers.get(name)
  }

  consumers(name: string): readonly GraphNode[] {
    return this.#consumers.get(name) ?? []
  }

  /** A constant of the graph or the value of a Constant node. */
  constant(name: string): Constant | undefined {
    return this.#constants.get(name)
  }

  /** The elements of a small constant of numbers; undefined for others. */
  numbers(name: string): number[] | undefined {
    const constant = this.constant(name)
    return constant && elementsOf(constant)
  }

  /** The value of a constant with one element. */
  scalar(name: string): number | undefined {
    const values = this.numbers(name)
    return values?.length === 1 ? values[0] : undefined
  }

  /** The source of a tensor, skipping nodes that only rename it. */
  source(name: string): string {
    let at = name
    const renamed = new Set<string>()
    for (let node = this.producer(at); node?.operator === 'Identity'; node = this.producer(at)) {
      // The nodes of an invalid file may form a cycle.
      if (renamed.has(at)) break
      renamed.add(at)
      at = this.#sources.get(at) ?? (node.inputs[0] as string)
    }
    for (const other of renamed) this.#sources.set(other, at)
    return at
  }
}

/** Tensors of the enclosing graph that the subgraphs of a node read. */
export function outerNames(node: GraphNode): string[] {
  return Object.values(node.attributes).flatMap((attribute) => {
    if (attribute.kind !== 'graph') return []
    const { nodes, constants, inputs, outputs } = attribute.value
    const own = new Set([
      ...constants.map(({ name }) => name),
      ...inputs.map(({ name }) => name),
      ...nodes.flatMap((inner) => inner.outputs),
    ])
    const read = [
      ...nodes.flatMap((inner) => [...inner.inputs, ...outerNames(inner)]),
      ...outputs.map(({ name }) => name),
    ]
    return read.filter((name) => name !== '' && !own.has(name))
  })
}

/** The elements of a constant whose data are in memory, as numbers. */
function elementsOf({ onnxType, dims, data }: Constant): number[] | undefined {
  const type = findElementType(onnxType)
  if (type === undefined || data.kind !== 'bytes') return undefined
  const { bytes: size, view } = ELEMENT_TYPES[type]
  const count = countElements(dims)
  if (data.bytes.length < count * size) return undefined
  const copy = Uint8Array.from(data.bytes)
  return Array.from(view(copy.buffer, 0, count) as ArrayLike<number | bigint>, Number)
}

function constantOf({ outputs, attributes }: GraphNode): Constant | undefined {
  const name = outputs[0] as string
  const { value, value_int, value_float, value_ints, value_floats } = attributes
  if (value?.kind === 'tensor') return { ...value.value, name }
  const make = (onnxType: number, dims: number[], view: ArrayBufferView): Constant => {
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
    return { name, onnxType, dims, data: { kind: 'bytes', bytes } }
  }
  const { int64, float32 } = ELEMENT_TYPES
  if (value_int?.kind === 'int') return make(int64.onnxType, [], BigInt64Array.of(value_int.value))
  if (value_ints?.kind === 'ints') {
    return make(int64.onnxType, [value_ints.value.length], BigInt64Array.from(value_ints.value))
  }
  if (value_float?.kind === 'float') {
    return make(float32.onnxType, [], Float32Array.of(value_float.value))
  }
  if (value_floats?.kind === 'floats') {
    return make(
      float32.onnxType,
      [value_floats.value.length],
      Float32Array.from(value_floats.value),
    )
  }
  return undefined
}
