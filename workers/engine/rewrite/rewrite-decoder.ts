import { isCacheInput } from '#workers/engine/past-inputs.ts'
import { sorted, sourceOfTranspose, transposeOf, withoutUnused } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Constant,
  type Graph,
  type GraphNode,
  type GraphValue,
  type Model,
  makeValue,
} from '#workers/graph/model.ts'
import { ModelLoadError, ModelRunError } from '#workers/runtime/errors.ts'
import { findElementType } from '#workers/tensor/element-type.ts'

import type { ReferenceRun } from './add-caches.ts'
import {
  type AttentionLayer,
  findAttentionLayers,
  withTransposedGuards,
} from './attention-layers.ts'
import {
  fitAttention,
  fitRotation,
  type RotationTables,
  tableConstants,
} from './attention-probe.ts'
import { withSplitHeads } from './caching-operators.ts'
import { computesText } from './compare-text.ts'
import type { ProbeContext } from './graph-probe.ts'
import {
  type AttentionSettings,
  attentionNodes,
  lengthNodes,
  shapeConstants,
} from './group-query.ts'
import { takePositions } from './position-input.ts'
import type { HeadShape } from './probe-feeds.ts'
import { keyOf, readRotationTables } from './rotation-tables.ts'
import { signatureOf } from './signature.ts'

/** From this version on, sums take their axes as an input, as the nodes for row lengths do. */
const OPSET_MIN = 13

/** Wider layers are not run for measurement, because no model has them. */
const WIDTH_MAX = 1 << 17

/** Properties of a decoder that its graph does not state. */
interface DecoderShape {
  readonly numHeads: number
  /** Positions that the engine will use. */
  readonly contextLength: number
  /** The output to compare with; set if caches were added to the graph. */
  readonly reference?: ReferenceRun
}

/** An attention with its replacement. */
interface FittedLayer {
  readonly layer: AttentionLayer
  readonly settings: AttentionSettings
  readonly tables: RotationTables | undefined
}

/**
 * Rewrites a decoder whose cache grows by concatenation to GroupQueryAttention with an in-place
 * cache. Undefined when a layer is not recognized or not exactly equivalent to such an attention:
 * each kind of layer is run alone beside its replacement.
 */
export async function rewriteDecoder(
  context: ProbeContext,
  original: Model,
  { numHeads, contextLength, reference }: DecoderShape,
): Promise<Model | undefined> {
  const model = withTransposedGuards(withSplitHeads(original))
  const view = new GraphView(model.graph)
  if (!model.opsets.some(({ domain, version }) => domain === '' && version >= OPSET_MIN)) {
    return undefined
  }
  const layers = findAttentionLayers(view)
  const hasPast = reference === undefined
  const shape = layers && headShape(model.graph, { numHeads, hasPast })
  if (layers === undefined || shape === undefined) return undefined
  const fits = await ifRunnable(() =>
    fitLayers(context, model, layers, { ...shape, contextLength }),
  )
  if (fits === undefined) return undefined
  const replaced = replaceLayers(view, fits, shape)
  if (shape.positionAxes > 1 && !isInPlace(replaced)) return undefined
  const graph =
    hasPast && isInPlace(replaced)
      ? replaced
      : await ifRunnable(() => takePositions(context, model, replaced, shape))
  if (graph === undefined || !isInPlace(graph)) return undefined
  const rewritten = { ...withMicrosoft(model), graph }
  const isSame =
    reference === undefined ||
    (await ifRunnable(() => computesText(context, rewritten, { shape, reference })))
  return isSame ? rewritten : undefined
}

/** The result of running parts of a graph; undefined if the runtime refuses one. */
export async function ifRunnable<Result>(work: () => Promise<Result>): Promise<Result | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof ModelRunError || error instanceof ModelLoadError) return undefined
    throw error
  }
}

/** The sizes of the caches, which are those of keys and values alike. */
function headShape(
  { inputs }: Graph,
  { numHeads, hasPast }: Pick<HeadShape, 'numHeads' | 'hasPast'>,
): HeadShape | undefined {
  const pasts = inputs.filter(({ name }) => isCacheInput(name))
  const shapes = pasts.map(({ onnxType = 0, dims = [] }) => ({
    type: findElementType(onnxType),
    dims,
  }))
  const [first] = shapes
  const { type, dims = [] } = first ?? {}
  const [, numCacheHeads, , headDim] = dims
  if (typeof numCacheHeads !== 'number' || typeof headDim !== 'number') return undefined
  if (type !== 'float32' && type !== 'float16') return undefined
  const isUniform = shapes.every((other) => {
    return other.type === type && other.dims[1] === numCacheHeads && other.dims[3] === headDim
  })
  const isBounded = numHeads * headDim <= WIDTH_MAX
  return isUniform && isBounded && numHeads % numCacheHeads === 0
    ? {
        numHeads,
        numCacheHeads,
        headDim,
        type,
        hasPast,
        pasts: pasts.map(({ name }) => name),
        ...tokenShape(inputs),
      }
    : undefined
}

/** The inputs of tokens and their positions. */
function tokenShape(inputs: Graph['inputs']): Pick<HeadShape, 'positionAxes' | 'embedding'> {
  const positions = inputs.find(({ name }) => name === 'position_ids')
  const { dims, onnxType = 0 } = inputs.find(({ name }) => name === 'inputs_embeds') ?? {}
  const size = dims?.at(-1)
  const type = findElementType(onnxType)
  return {
    positionAxes: positions?.dims?.length === 3 ? 3 : 1,
    ...(typeof size === 'number' && type !== undefined && { embedding: { size, type } }),
  }
}

async function fitLayers(
  context: ProbeContext,
  model: Model,
  layers: readonly AttentionLayer[],
  shape: HeadShape & { readonly contextLength: number },
): Promise<FittedLayer[] | undefined> {
  const view = new GraphView(model.graph)
  const { contextLength } = shape
  const kinds = layers.map((layer) => signatureOf(view, layer))
  const rotaries = layers.flatMap(({ rotary }, at) => {
    return rotary && kinds.indexOf(kinds[at] as string) === at ? [rotary] : []
  })
  const tablesOf = await readRotationTables(context, model, { rotaries, contextLength, shape })
  const known = new Map<string, Pick<FittedLayer, 'settings' | 'tables'>>()
  const fits: FittedLayer[] = []
  for (const [at, layer] of layers.entries()) {
    const kind = kinds[at] as string
    let fit = known.get(kind)
    if (fit === undefined) {
      const settings = await fitAttention(context, model, layer, shape)
      if (settings === undefined) return undefined
      const tables = layer.rotary && tablesOf.get(keyOf(layer.rotary))
      const fitted = { layer, shape, settings }
      const rotated =
        tables && (await ifRunnable(() => fitRotation(context, model, { ...fitted, tables })))
      fit = { settings: rotated ?? settings, tables: rotated && tables }
      known.set(kind, fit)
    }
    fits.push({ layer, ...fit })
  }
  return fits
}

/** The graph with its attentions replaced. */
function replaceLayers(view: GraphView, fits: readonly FittedLayer[], { type }: HeadShape): Graph {
  const { graph } = view
  const { nodes, constants } = lengthNodes()
  const added: GraphNode[] = [...nodes]
  const shapes = new Map<string, Constant>()
  const tables = new Map<RotationTables, { cos: string; sin: string }>()
  const replaced = new Set<string>()
  for (const { layer, settings, tables: rotation } of fits) {
    const { rotary, value, output } = layer
    for (const constant of shapeConstants(settings)) shapes.set(constant.name, constant)
    const names = rotation && {
      cos: `rewrite/cos_${tables.size}`,
      sin: `rewrite/sin_${tables.size}`,
    }
    if (rotation && names && !tables.has(rotation)) tables.set(rotation, names)
    const wanted = transposeOf(view, output)
    const source = rotation && rotary ? rotary : layer
    const tensors = {
      query: source.query,
      key: source.key,
      value,
      output: wanted ?? output,
      pastKey: layer.pastKey,
      pastValue: layer.pastValue,
      presentKey: layer.presentKey,
      presentValue: layer.presentValue,
      tables: rotation && tables.get(rotation),
    }
    const untransposed = (tensor: string): string | undefined => sourceOfTranspose(view, tensor)
    const isTransposed = wanted !== undefined
    added.push(...attentionNodes(tensors, settings, { untransposed, isTransposed }))
    for (const name of [tensors.output, layer.presentKey, layer.presentValue]) replaced.add(name)
  }
  const kept = graph.nodes.filter(({ outputs }) => !outputs.some((name) => replaced.has(name)))
  const grown = new Set(fits.flatMap(({ layer }) => [layer.presentKey, layer.presentValue]))
  const rotations = [...tables].flatMap(([table, names]) => tableConstants(table, names, type))
  const hasMask = graph.inputs.some(({ name }) => name === MASK.name)
  const whole = {
    ...graph,
    inputs: hasMask ? graph.inputs : [...graph.inputs, MASK],
    nodes: sorted([...kept, ...added]),
    constants: [...graph.constants, ...constants, ...shapes.values(), ...rotations],
    outputs: graph.outputs.map((value) => (grown.has(value.name) ? likeItsPast(value) : value)),
  }
  return withoutUnused(new GraphView(whole))
}

/** Graphs without a padding mask have none, but the lengths of rows depend on it. */
const MASK = makeValue('attention_mask', 'int64', ['batch_size', 'total_length'])

/** Past and present share one buffer, so they have the same length. */
function likeItsPast(value: GraphValue): GraphValue {
  if (value.dims === undefined) return value
  return { ...value, dims: value.dims.map((dim, axis) => (axis === 2 ? 'cache_length' : dim)) }
}

/** Whether only the attentions read the contents of caches, their length and the mask. */
function isInPlace(graph: Graph): boolean {
  const view = new GraphView(graph)
  return graph.nodes.every((node) => {
    const { operator, name, inputs } = node
    if (operator === 'GroupQueryAttention' || name.startsWith('rewrite/')) return true
    if (inputs.includes('attention_mask')) return false
    return !inputs.some(isCacheInput) || readsOtherSizes(view, node)
  })
}

/** Whether a node takes the number of rows, of heads or the size of a head from a cache. */
function readsOtherSizes(view: GraphView, { operator, outputs, attributes }: GraphNode): boolean {
  if (operator !== 'Shape') return false
  const { start, end } = attributes
  const first = start?.kind === 'int' ? Number(start.value) : 0
  const after = end?.kind === 'int' ? Number(end.value) : CACHE_AXES
  if (after <= LENGTH_AXIS || first > LENGTH_AXIS) return first >= 0 && after >= 0
  return view.consumers(outputs[0] as string).every((node) => {
    const axes = node.operator === 'Gather' ? view.numbers(node.inputs[1] as string) : undefined
    return axes?.every((axis) => axis >= 0 && axis !== LENGTH_AXIS - first) === true
  })
}

const CACHE_AXES = 4
const LENGTH_AXIS = 2

function withMicrosoft(model: Model): Model {
  const others = model.opsets.filter(({ domain }) => domain !== 'com.microsoft')
  return { ...model, opsets: [...others, { domain: 'com.microsoft', version: 1 }] }
}
