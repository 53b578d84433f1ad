import { realpath } from 'node:fs/promises'
import { dirname } from 'node:path'

import { ancestryOf } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Constant,
  type Graph,
  type GraphNode,
  int,
  int64Constant,
  type Model,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { resolveWeights } from '#workers/graph/resolve-weights.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import type { ModelBytes } from '#workers/runtime/runtime.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'

import type { AlignmentHead } from './alignment-heads.ts'

/** The heads whose attentions are needed, and the number of heads in each layer of the decoder. */
export interface WantedHeads {
  readonly heads: readonly AlignmentHead[]
  readonly headsPerLayer: number
}

/** The wanted heads of each layer, in the order in which they are returned. */
type HeadsByLayer = ReadonlyMap<number, readonly number[]>

const STATES = 'encoder_hidden_states'
const ENCODER_KEY = /^(past_key_values|present)\.\d{1,4}\.encoder\.key$/
/** A key that depends on one of these belongs to the decoder's self-attention. */
const OF_DECODER = /^(input_ids|past_key_values\.\d{1,4}\.decoder\.)/
const PRODUCT = /MatMul|^Einsum$/

/** The name of the output with the attentions of a layer, as in the hub's exports. */
export function attentionName(layer: number): string {
  return `cross_attentions.${layer}`
}

/**
 * A decoder that also returns the cross-attentions of some heads as `cross_attentions.N`: `[batch,
 * heads of the layer, tokens, positions]` in single precision. Only the given heads are copied, so
 * that runs that do not fetch them need no more memory. Undefined if the attentions are outputs
 * already, if a layer is not recognized, or if the number of heads differs.
 */
export async function exposeAttentions(
  file: string,
  decoder: Model,
  { heads, headsPerLayer }: WantedHeads,
): Promise<ModelBytes | undefined> {
  const realFile = await realpath(file)
  const model = await resolveWeights(decoder, { file, realFile })
  const graph = model && expose(model.graph, headsByLayer(heads), headsPerLayer)
  return graph && { name: file, bytes: writeModel({ ...model, graph }), folder: dirname(realFile) }
}

function headsByLayer(heads: readonly AlignmentHead[]): HeadsByLayer {
  const layers = Map.groupBy(heads, ({ layer }) => layer)
  return new Map([...layers].map(([layer, found]) => [layer, found.map(({ head }) => head)]))
}

function expose(graph: Graph, heads: HeadsByLayer, headsPerLayer: number): Graph | undefined {
  const caches = graph.outputs.filter(({ name }) => ENCODER_KEY.test(name))
  const isReturned = graph.outputs.some(({ name }) => name.startsWith('cross_attentions.'))
  const isExpected = caches.every(({ dims: [, count] = [] }) => {
    // Not every export states it.
    return typeof count !== 'number' || count === headsPerLayer
  })
  if (isReturned || !isExpected || heads.size === 0) return undefined
  if ([...heads.keys()].some((layer) => layer >= caches.length)) return undefined
  const shape = { heads, headsPerLayer, numLayers: caches.length }
  const branch = graph.nodes.find(({ operator }) => operator === 'If')
  const whole = branch ? exposeBranch(graph, branch, shape) : exposeNodes(graph, shape)
  return whole && withOutputs(whole, heads)
}

interface DecoderShape {
  readonly heads: HeadsByLayer
  readonly headsPerLayer: number
  readonly numLayers: number
}

/**
 * Adds the attentions to the branch that reads the encoder's states; the other returns empty ones.
 */
function exposeBranch(graph: Graph, node: GraphNode, shape: DecoderShape): Graph | undefined {
  const { then_branch: later, else_branch: first, ...rest } = node.attributes
  if (later?.kind !== 'graph' || first?.kind !== 'graph') return undefined
  // Quantized states are computed outside the branches, which share them.
  const before = graph.nodes.filter((other) => other !== node)
  const exposed = exposeNodes(first.value, shape, before)
  if (exposed === undefined) return undefined
  const { heads } = shape
  const attributes = {
    ...rest,
    then_branch: { ...later, value: withOutputs(withEmpty(later.value, heads), heads) },
    else_branch: { ...first, value: withOutputs(exposed, heads) },
  }
  const outputs = [...node.outputs, ...[...heads.keys()].map(attentionName)]
  const merged = { ...node, attributes, outputs }
  return { ...graph, nodes: graph.nodes.map((other) => (other === node ? merged : other)) }
}

function exposeNodes(
  graph: Graph,
  { heads, headsPerLayer, numLayers }: DecoderShape,
  before: readonly GraphNode[] = [],
): Graph | undefined {
  const weights = findCrossAttentions(
    new GraphView({ ...graph, nodes: [...before, ...graph.nodes] }),
  )
  if (weights.length !== numLayers) return undefined
  const constants: Constant[] = [
    int64Constant('attentions/lastAxes', [-2, -1]),
    int64Constant('attentions/rows', [-1, headsPerLayer]),
  ]
  const nodes = [...heads].flatMap(([layer, indices]) => {
    const name = (part: string): string => `attentions/${part}.${layer}`
    constants.push(int64Constant(name('heads'), indices))
    const weight = weights[layer] as string
    // Older exports fold rows and heads into one axis.
    return [
      makeNode('Shape', [weight], name('shape')),
      makeNode('Gather', [name('shape'), 'attentions/lastAxes'], name('sizes')),
      makeNode('Concat', ['attentions/rows', name('sizes')], name('unfolded'), {
        attributes: { axis: int(0) },
      }),
      makeNode('Reshape', [weight, name('unfolded')], name('all')),
      makeNode('Gather', [name('all'), name('heads')], name('chosen'), {
        attributes: { axis: int(1) },
      }),
      makeNode('Cast', [name('chosen')], attentionName(layer), {
        attributes: { to: int(ELEMENT_TYPES.float32.onnxType) },
      }),
    ]
  })
  return {
    ...graph,
    nodes: [...graph.nodes, ...nodes],
    constants: [...graph.constants, ...constants],
  }
}

function withEmpty(graph: Graph, heads: HeadsByLayer): Graph {
  const layers = [...heads]
  const shape = (layer: number): string => `attentions/empty.${layer}`
  return {
    ...graph,
    nodes: [
      ...graph.nodes,
      ...layers.map(([layer]) => makeNode('ConstantOfShape', [shape(layer)], attentionName(layer))),
    ],
    constants: [
      ...graph.constants,
      ...layers.map(([layer, { length }]) => int64Constant(shape(layer), [0, length, 0, 0])),
    ],
  }
}

function withOutputs(graph: Graph, heads: HeadsByLayer): Graph {
  const values = [...heads].map(([layer, { length }]) =>
    makeValue(attentionName(layer), 'float32', ['', length, '', '']),
  )
  return { ...graph, outputs: [...graph.outputs, ...values] }
}

/**
 * The weights of every cross-attention, from the first layer to the last: each depends on the
 * earlier ones, and nodes are in topological order. A Softmax belongs to a cross-attention if the
 * keys of its scores come only from the encoder's states or their cache. Sizes that are read from
 * the shapes of other tensors do not count.
 */
function findCrossAttentions(view: GraphView): string[] {
  const outputsOf = (matches: (node: GraphNode) => boolean): string[] =>
    view.graph.nodes.filter(matches).flatMap(({ outputs }) => outputs)
  const shapes = new Set(outputsOf(({ operator }) => operator === 'Shape'))
  const products = new Set(outputsOf(({ operator }) => PRODUCT.test(operator)))
  // The scales of quantized factors are computed from the factors.
  const scales = outputsOf(({ operator }) => operator === 'DynamicQuantizeLinear')
  const boundary = new Set([...shapes, ...products, ...scales])
  const isOfEncoder = (factor: string): boolean => {
    const { inputs } = ancestryOf(view, [factor], shapes)
    const isRead = inputs.some((name) => name === STATES || ENCODER_KEY.test(name))
    return isRead && !inputs.some((name) => OF_DECODER.test(name))
  }
  return view.graph.nodes.flatMap(({ operator, inputs, outputs }) => {
    if (operator !== 'Softmax') return []
    const found = ancestryOf(view, inputs, boundary).inputs.filter((name) => products.has(name))
    const [scores, ...others] = found
    const factors = scores === undefined ? [] : (view.producer(scores)?.inputs ?? [])
    return others.length === 0 && factors.some(isOfEncoder) ? [outputs[0] as string] : []
  })
}
