import {
  type GraphNode,
  type GraphValue,
  int,
  type Model,
  makeConstant,
} from '#workers/graph/model.ts'
import { countElements, ELEMENT_TYPES, findElementType } from '#workers/tensor/element-type.ts'

/** An exporter's names of a decoder's cache: the input, and the output after a run. */
const PREFIXES = [
  { past: /^past_(key_values|states)\./, present: 'present.' },
  { past: /^past\.(?=\d+\.)/, present: 'present.' },
  { past: /^past_(?=\w+\.)/, present: 'present_' },
] as const

/** Whether an input has the keys or values of a layer, which grow with the text. */
export function isCacheInput(name: string): boolean {
  return /^past(_key_values\.(.+\.)?|\.\d+\.)(key|value)$/.test(name)
}

/**
 * Whether an input is a layer's state: `past_conv.0` in transformers.js,
 * `past_key_values.0.conv_state` and `past.0.conv` in onnxruntime-genai, `past_states.0.ssm_state`
 * in Mobius.
 */
export function isStateInput(name: string): boolean {
  return !isCacheInput(name) && PREFIXES.some(({ past }) => past.test(name))
}

/** The output that becomes the input of the next run. */
export function presentOf(input: string): string {
  const names = PREFIXES.find(({ past }) => past.test(input))
  return names === undefined ? input : input.replace(names.past, names.present)
}

/** Whether a decoder has attention, whose keys and values grow with the text. */
export function hasCacheInputs({ graph }: Model): boolean {
  return graph.inputs.some(({ name }) => isCacheInput(name))
}

/**
 * The model with the given head size in caches that state none, as onnxruntime-genai 0.18 writes
 * them; unchanged if all caches state theirs.
 */
export function withHeadDim(model: Model, headDim: number | undefined): Model {
  const isOpen = ({ name, dims }: GraphValue): boolean =>
    isCacheInput(name) && dims?.length === 4 && typeof dims[3] === 'string'
  const open = model.graph.inputs.filter(isOpen).map(({ name }) => name)
  if (open.length === 0 || headDim === undefined) return model
  const names = new Set(open.flatMap((name) => [name, presentOf(name)]))
  const state = (value: GraphValue): GraphValue =>
    names.has(value.name) && value.dims !== undefined
      ? { ...value, dims: [...value.dims.slice(0, 3), headDim] }
      : value
  const { inputs, outputs } = model.graph
  const graph = { ...model.graph, inputs: inputs.map(state), outputs: outputs.map(state) }
  return { ...model, graph }
}

/**
 * Replaces the inputs with the length of attention windows, which transformers 5 writes, by a
 * constant. Returns the model unchanged without such inputs.
 */
export function withWindowLength(model: Model, length: number | undefined): Model {
  const isLength = ({ name }: GraphValue): boolean => name.endsWith('._sliding_window_tensor')
  const names = model.graph.inputs.filter(isLength).map(({ name }) => name)
  if (names.length === 0 || length === undefined) return model
  const value = BigInt64Array.of(BigInt(length))
  const constants = names.map((name) => makeConstant(name, 'int64', [], value))
  const others = (values: readonly GraphValue[]) => values.filter((one) => !isLength(one))
  const { graph } = model
  const [inputs, outputs] = [others(graph.inputs), others(graph.outputs)]
  const all = [...graph.constants, ...constants]
  return { ...model, graph: { ...graph, inputs, outputs, constants: all } }
}

/**
 * The model with caches of all positions in place of the ring buffers of layers with a window, as
 * onnxruntime-genai 0.18 writes them; unchanged without such layers. A ring buffer has one length
 * for all rows, and no prefix that could be continued. The window stays.
 */
export function withWholeCaches(model: Model): Model {
  const isRing = ({ attributes: { [RING]: setting } }: GraphNode): boolean =>
    setting?.kind === 'int' && setting.value !== 0n
  if (!model.graph.nodes.some(isRing)) return model
  const nodes = model.graph.nodes.map((node) =>
    isRing(node) ? { ...node, attributes: { ...node.attributes, [RING]: int(0) } } : node,
  )
  return { ...model, graph: { ...model.graph, nodes } }
}

/** The attribute of GroupQueryAttention. */
const RING = 'sliding_window_cache'

/** Bytes of a decoder's cache, by its inputs: per position, and independent of the length. */
export function bytesOfPast({ graph }: Model): { positionBytes: number; stateBytes: number } {
  const sum = (isCounted: (name: string) => boolean, free: readonly number[]): number => {
    const counted = graph.inputs.filter(({ name }) => isCounted(name))
    return counted.reduce((total, input) => total + bytesOf(input, free), 0)
  }
  return { positionBytes: sum(isCacheInput, [0, 2]), stateBytes: sum(isStateInput, [0]) }
}

/** Bytes of one element of the free axes; 0 for inputs that loading refuses. */
function bytesOf({ onnxType = 0, dims = [] }: GraphValue, free: readonly number[]): number {
  const type = findElementType(onnxType)
  const sizes = dims.filter((_, axis) => !free.includes(axis))
  const isKnown = sizes.every((size) => typeof size === 'number')
  return type && isKnown ? countElements(sizes) * ELEMENT_TYPES[type].bytes : 0
}
