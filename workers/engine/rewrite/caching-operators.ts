import { isCacheInput } from '#workers/engine/past-inputs.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Constant,
  type GraphNode,
  int64Constant,
  ints,
  type Model,
  makeNode,
} from '#workers/graph/model.ts'

/** Indexes of the cache among the inputs and outputs of an operator: keys, then values. */
interface CachePlaces {
  readonly pasts: readonly [number, number]
  readonly presents: readonly [number, number]
}

const OPERATORS: ReadonlyMap<string, CachePlaces> = new Map([
  ['GroupQueryAttention', { pasts: [3, 4], presents: [1, 2] }],
  ['MultiHeadAttention', { pasts: [6, 7], presents: [1, 2] }],
  ['Attention', { pasts: [4, 5], presents: [1, 2] }],
])

/** Returns where an operator has its cache; undefined if it does not append to one itself. */
export function cachePlacesOf({ operator }: GraphNode): CachePlaces | undefined {
  return OPERATORS.get(operator)
}

/** Finds the operator that appends to a cache and attends to it. */
function findCachingNode(view: GraphView, past: string): GraphNode | undefined {
  const [node, ...others] = view.consumers(past).filter(({ operator }) => operator !== 'Shape')
  const places = node && others.length === 0 ? cachePlacesOf(node) : undefined
  return places?.pasts.some((place) => node?.inputs[place] === past) ? node : undefined
}

/**
 * Adds tensors of [batch, heads, length, size] before and after operators with a cache that read
 * and write [batch, length, heads · size], by splitting and joining the heads. This changes no
 * number. Returns the same model if it has no such operator.
 */
export function withSplitHeads(model: Model): Model {
  const view = new GraphView(model.graph)
  const constants = new Map<string, Constant>([[JOINED.name, JOINED]])
  const nodes = model.graph.nodes.flatMap((node) => {
    const sizes = joinedSizes(view, node)
    return sizes === undefined ? [node] : splitNode(node, sizes, constants)
  })
  if (constants.size === 1) return model
  const all = [...model.graph.constants, ...constants.values()]
  return { ...model, graph: { ...model.graph, nodes, constants: all } }
}

const JOINED = int64Constant('rewrite/all_heads', [0, 0, -1])
const TRANSPOSED = { attributes: { perm: ints(0, 2, 1, 3) } }

interface JoinedSizes {
  readonly numHeads: number
  readonly numCacheHeads: number
  readonly headDim: number
}

/** The sizes of an operator whose query has three axes. */
function joinedSizes({ graph }: GraphView, node: GraphNode): JoinedSizes | undefined {
  const { operator, inputs, attributes } = node
  const past = inputs[cachePlacesOf(node)?.pasts[0] ?? inputs.length]
  const cache = graph.inputs.find(({ name }) => name === past && isCacheInput(name))
  const [, numCacheHeads, , headDim] = cache?.dims ?? []
  if (operator === 'GroupQueryAttention' || inputs.slice(0, 3).includes('')) return undefined
  // Attention has this attribute if its inputs have three axes.
  const headsAttribute = attributes.q_num_heads ?? attributes.num_heads
  if (headsAttribute?.kind !== 'int' || typeof numCacheHeads !== 'number') return undefined
  if (typeof headDim !== 'number') return undefined
  return { numHeads: Number(headsAttribute.value), numCacheHeads, headDim }
}

function splitNode(
  node: GraphNode,
  { numHeads, numCacheHeads, headDim }: JoinedSizes,
  constants: Map<string, Constant>,
): GraphNode[] {
  const shapeOf = (heads: number): string => {
    const shape = int64Constant(`rewrite/split_${heads}x${headDim}`, [0, 0, heads, headDim])
    constants.set(shape.name, shape)
    return shape.name
  }
  /** Splits a tensor into heads and joins them under another name. */
  const splitAndJoin = (from: string, to: string, heads: number): GraphNode[] => [
    makeNode('Reshape', [from, shapeOf(heads)], `${to}/split`),
    makeNode('Transpose', [`${to}/split`], `${to}/heads`, TRANSPOSED),
    makeNode('Transpose', [`${to}/heads`], `${to}/turned`, TRANSPOSED),
    makeNode('Reshape', [`${to}/turned`, JOINED.name], to),
  ]
  const [output = '', ...presents] = node.outputs
  const places = [numHeads, numCacheHeads, numCacheHeads]
  const joined = places.map((_, at) => `${output}/input_${at}`)
  return [
    ...places.flatMap((heads, at) => splitAndJoin(node.inputs[at] ?? '', joined[at] ?? '', heads)),
    {
      ...node,
      inputs: [...joined, ...node.inputs.slice(3)],
      outputs: [`${output}/joined`, ...presents],
    },
    ...splitAndJoin(`${output}/joined`, output, numHeads),
  ]
}

/** The tensors, split into heads, of an attention whose operator has the cache. */
interface CachingAttention {
  readonly query: string
  readonly key: string
  readonly value: string
  readonly output: string
}

/** Finds the operator that appends to a cache; undefined if the graph does so otherwise. */
export function findCachingAttention(
  view: GraphView,
  past: { readonly key: string; readonly value: string },
  present: { readonly key: string; readonly value: string },
): CachingAttention | undefined {
  const node = findCachingNode(view, past.key)
  const places = node && cachePlacesOf(node)
  if (places === undefined || findCachingNode(view, past.value) !== node) return undefined
  const [keys, values] = places.presents.map((place) => node?.outputs[place])
  if (view.source(present.key) !== keys || view.source(present.value) !== values) return undefined
  const [query, key, value] = (node?.inputs ?? []).map((name) => headsOf(view, name))
  const output = node?.outputs[0]
  if (!query || !key || !value || output === undefined) return undefined
  return { query, key, value, output: afterHeads(view, output) }
}

/** Finds the heads that `withSplitHeads` joins to an input. */
function headsOf(view: GraphView, name: string): string {
  const turned = view.producer(name)
  const heads = turned?.operator === 'Reshape' ? view.producer(turned.inputs[0] ?? '') : undefined
  return heads?.outputs[0] === `${name}/turned` ? (heads.inputs[0] ?? name) : name
}

/** Finds the heads into which `withSplitHeads` splits an output. */
function afterHeads(view: GraphView, name: string): string {
  const [split] = view.consumers(name)
  const [heads] = view.consumers(split?.outputs[0] ?? '')
  const found = heads?.outputs[0]
  return name.endsWith('/joined') && found?.endsWith('/heads') ? found : name
}
