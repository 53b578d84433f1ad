import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type GraphNode,
  type GraphValue,
  int,
  int64Constant,
  type Model,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'

import { findLinearModules, isHalf, type LinearModule } from './target-modules.ts'
import { findRanks } from './tensor-ranks.ts'

/** Further inputs of a graph with adapters. */
export const ADAPTER_INPUTS = {
  /** The rows of the run by group: those of each adapter, padded to one count. */
  order: 'adapter_order',
  /** The position of each row among the groups. */
  rows: 'adapter_rows',
  /** The number of groups, and of the products per group: one, or one for each row. */
  layout: 'adapter_layout',
} as const

/** A module and the inputs that hold its low-rank matrices of the groups. */
export interface AdapterTarget extends LinearModule {
  /** [groups, 1, in, rank] */
  readonly a: string
  /** [groups, 1, rank, out] */
  readonly b: string
}

/**
 * Adds input · a · b to every linear layer of a decoder. The rows of a run are grouped by adapter,
 * so that the products read each adapter's matrices once. Undefined for graphs without linear
 * layers at their top level.
 */
export function addAdapters(
  model: Model,
): { readonly model: Model; readonly targets: readonly AdapterTarget[] } | undefined {
  const view = new GraphView(model.graph)
  const targets = findLinearModules(view).map((module, index) => ({
    ...module,
    a: `adapter_a.${index}`,
    b: `adapter_b.${index}`,
  }))
  if (targets.length === 0) return undefined
  const pass = new Pass(view, targets)
  const nodes = model.graph.nodes.flatMap((node) => pass.rewrite(node))
  const inputs = targets.flatMap(({ a, b, inSize, outSize }): GraphValue[] => [
    makeValue(a, 'float32', ['adapter_groups', 1, inSize, 'adapter_rank']),
    makeValue(b, 'float32', ['adapter_groups', 1, 'adapter_rank', outSize]),
  ])
  const { order, rows, layout } = ADAPTER_INPUTS
  const { graph } = model
  return {
    targets,
    model: {
      ...model,
      graph: {
        ...graph,
        nodes: [...pass.first, ...nodes],
        constants: [...graph.constants, ...pass.constants],
        inputs: [
          ...graph.inputs,
          makeValue(order, 'int64', ['adapter_order']),
          makeValue(rows, 'int64', ['adapter_rows']),
          makeValue(layout, 'int64', [2]),
          ...inputs,
        ],
      },
    },
  }
}

/** Creates the nodes of the branches; layers with the same input share its layout. */
class Pass {
  readonly constants = [int64Constant('adapter/any', [-1])]
  /** Nodes before all others. */
  readonly first: GraphNode[] = []
  readonly #targets: ReadonlyMap<string, AdapterTarget>
  readonly #ranks: ReadonlyMap<string, number>
  readonly #isHalf: boolean
  readonly #grouped = new Map<string, string>()
  readonly #names = new Set<string>()

  constructor(view: GraphView, targets: readonly AdapterTarget[]) {
    this.#targets = new Map(targets.map((target) => [target.output, target]))
    this.#ranks = findRanks(view.graph)
    this.#isHalf = isHalf(view.graph)
    const { order, rows } = ADAPTER_INPUTS
    this.first.push(
      makeNode('Shape', [order], 'adapter/num_grouped'),
      makeNode('Shape', [rows], 'adapter/num_rows'),
    )
  }

  /** A node, and the branch that is added to its output. */
  rewrite(node: GraphNode): GraphNode[] {
    const target = node.outputs.map((name) => this.#targets.get(name)).find((found) => found)
    if (target === undefined) return [node]
    const { output } = target
    const base = `${output}/base`
    const outputs = node.outputs.map((name) => (name === output ? base : name))
    const nodes: GraphNode[] = []
    const added = this.#branch(target, base, nodes)
    return [{ ...node, outputs }, ...nodes, makeNode('Add', [base, added], output)]
  }

  #branch(target: AdapterTarget, base: string, nodes: GraphNode[]): string {
    const { input, output, a, b, outSize } = target
    const is3d = this.#ranks.get(input) === 3
    const add = (
      operator: string,
      inputs: readonly string[],
      name: string,
      to?: 'half',
    ): string => {
      const attributes = to && { to: int(ELEMENT_TYPES.float16.onnxType) }
      nodes.push(makeNode(operator, inputs, name, { ...(attributes && { attributes }) }))
      return name
    }
    const grouped = this.#group(target, is3d, nodes)
    const narrow = add('MatMul', [grouped, a], `${output}/adapter_low`)
    const wide = add('MatMul', [narrow, b], `${output}/adapter_wide`)
    const shape = this.#shape(`adapter/out_${outSize}`, 'adapter/num_grouped', outSize)
    const split = add('Reshape', [wide, shape], `${output}/adapter_split`)
    const rows = add('Gather', [split, ADAPTER_INPUTS.rows], `${output}/adapter_rows`)
    const typed = this.#isHalf ? add('Cast', [rows], `${output}/adapter_typed`, 'half') : rows
    if (is3d) return typed
    const like = add('Shape', [base], `${output}/adapter_like`)
    return add('Reshape', [typed, like], `${output}/adapter_flat`)
  }

  /** The input as [groups, products, rows of a product · length, in], in 32 bits. */
  #group({ input, inSize }: AdapterTarget, is3d: boolean, nodes: GraphNode[]): string {
    const known = this.#grouped.get(input)
    if (known !== undefined) return known
    const name = (suffix: string): string => `${input}/adapter_${suffix}`
    const rows = is3d ? input : name('rows')
    if (!is3d) {
      const shape = this.#shape(`adapter/rows_${inSize}`, 'adapter/num_rows', inSize)
      nodes.push(makeNode('Reshape', [input, shape], rows))
    }
    nodes.push(makeNode('Gather', [rows, ADAPTER_INPUTS.order], name('gathered')))
    const attributes = { to: int(ELEMENT_TYPES.float32.onnxType) }
    if (this.#isHalf) nodes.push(makeNode('Cast', [name('gathered')], name('wide'), { attributes }))
    const shape = this.#shape(`adapter/in_${inSize}`, ADAPTER_INPUTS.layout, inSize)
    const wide = name(this.#isHalf ? 'wide' : 'gathered')
    nodes.push(makeNode('Reshape', [wide, shape], name('grouped')))
    this.#grouped.set(input, name('grouped'))
    return name('grouped')
  }

  /** The shape [...counts, any, size]. */
  #shape(name: string, counts: string, size: number): string {
    if (this.#names.has(name)) return name
    this.#names.add(name)
    this.constants.push(int64Constant(`${name}_size`, [size]))
    const attributes = { axis: int(0) }
    const inputs = [counts, 'adapter/any', `${name}_size`]
    this.first.push(makeNode('Concat', inputs, name, { attributes }))
    return name
  }
}
