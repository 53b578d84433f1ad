import type { GraphView } from '#workers/graph/graph-view.ts'
import type { Graph, GraphNode } from '#workers/graph/model.ts'
import { ELEMENT_TYPES } from '#workers/tensor/element-type.ts'

/** A linear layer of a decoder, without its bias: output = input · weights. */
export interface LinearModule {
  /** Its name in PyTorch: `model.layers.0.self_attn.q_proj`. Fused projections are one module. */
  readonly path: string
  /** The product of matrices. */
  readonly node: GraphNode
  /** Names of floating-point tensors, before and after any quantization of activations. */
  readonly input: string
  readonly output: string
  /**
   * `matrix`: a float matrix, constant or computed from constants; `blocks`: weights of
   * MatMulNBits; `integers`: an int8 matrix that is multiplied by quantized activations.
   */
  readonly form: 'matrix' | 'blocks' | 'integers'
  /** The name of the weights among the inputs of the node. */
  readonly weight: string
  readonly inSize: number
  readonly outSize: number
  /** The weights are stored as [out, in]. */
  readonly isTransposed: boolean
}

/**
 * Every linear layer at the top level of a graph whose name is that of a module, in graph order.
 */
export function findLinearModules(view: GraphView): LinearModule[] {
  return view.graph.nodes.flatMap((node) => {
    const read = Object.hasOwn(READERS, node.operator) ? READERS[node.operator] : undefined
    const found = read?.(view, node)
    if (found === undefined) return []
    const names = [found.weight, node.name, found.output, node.outputs[0] as string]
    const path = names.map(findModulePath).find((name) => name !== undefined)
    return path === undefined ? [] : [{ ...found, path, node }]
  })
}

/** The part of a path that identifies a module: from its layer on, without enclosing modules. */
export function moduleKey(path: string): string {
  return path.slice(LAYER.exec(path)?.index ?? 0)
}

/** Modules of PyTorch that exporters fuse into one, in the order of its outputs. */
export const FUSED_PARTS: Readonly<Record<string, readonly string[]>> = {
  qkv_proj: ['q_proj', 'k_proj', 'v_proj'],
  gate_up_proj: ['gate_proj', 'up_proj'],
}

const LAYER = /\b(layers|h|blocks)\.\d+\.(?=\w)/
const HEAD = /(^|\.)(lm_head|embed_out)$/
/** Suffixes that exporters and quantizers append to the name of a module. */
const SUFFIX = /\.(MatMul|Gemm|weight|matrix|kernel)([_.].*)?$/

/** The path in the name of a tensor or node: `/model/model/layers.0/mlp/up_proj/MatMul_Q4`. */
function findModulePath(name: string): string | undefined {
  const path = name
    .replaceAll('/', '.')
    .replace(/^\.+/, '')
    .replace(SUFFIX, '')
    // Exporters wrap the model in another module of this name.
    .replace(/^model\.(?=(model|transformer|gpt_neox|language_model|lm_head|embed_out)\b)/, '')
    .replace(/\b(layers\.\d+)\.attn\./, '$1.self_attn.')
  const layer = LAYER.exec(path)
  if (layer === null) return HEAD.test(path) ? path : undefined
  return /^[\w.]+$/.test(path) ? path : undefined
}

type Found = Omit<LinearModule, 'path' | 'node'>

const READERS: Readonly<Record<string, (view: GraphView, node: GraphNode) => Found | undefined>> = {
  MatMul: (view, node) => readMatrix(view, node, false),
  Gemm(view, node) {
    const { transA, transB, alpha } = node.attributes
    const isPlain = (transA?.kind !== 'int' || transA.value === 0n) && !isScaled(alpha)
    return isPlain
      ? readMatrix(view, node, transB?.kind === 'int' && transB.value === 1n)
      : undefined
  },
  MatMulNBits(view, { inputs, outputs, attributes: { K, N } }) {
    const [input = '', weight = ''] = inputs
    if (K?.kind !== 'int' || N?.kind !== 'int' || view.constant(weight) === undefined) {
      return undefined
    }
    const sizes = { inSize: Number(K.value), outSize: Number(N.value), isTransposed: true }
    return { form: 'blocks', input, weight, output: outputs[0] as string, ...sizes }
  },
  DynamicQuantizeMatMul(view, { inputs, outputs }) {
    return ofIntegers(view, inputs[0] ?? '', { weight: inputs[1] ?? '', output: outputs[0] ?? '' })
  },
  MatMulInteger(view, { inputs, outputs }) {
    const output = scaledOutput(view, outputs[0] as string)
    const input = unquantized(view, inputs[0] ?? '')
    if (output === undefined || input === undefined) return undefined
    return ofIntegers(view, input, { weight: inputs[1] ?? '', output })
  },
}

function isScaled(alpha: GraphNode['attributes'][string] | undefined): boolean {
  return alpha?.kind === 'float' && alpha.value !== 1
}

function readMatrix(
  view: GraphView,
  { inputs, outputs }: GraphNode,
  isTransposed: boolean,
): Found | undefined {
  const [input = '', weight = ''] = inputs
  const dims = weightDims(view, weight)
  if (dims?.length !== 2) return undefined
  const [inSize, outSize] = (isTransposed ? dims.toReversed() : dims) as [number, number]
  const output = outputs[0] as string
  return { form: 'matrix', input, weight, output, inSize, outSize, isTransposed }
}

function ofIntegers(
  view: GraphView,
  input: string,
  { weight, output }: { readonly weight: string; readonly output: string },
): Found | undefined {
  const dims = view.constant(weight)?.dims
  if (dims?.length !== 2) return undefined
  const [inSize, outSize] = dims as [number, number]
  return { form: 'integers', input, weight, output, inSize, outSize, isTransposed: false }
}

/** The activation before it was quantized. */
function unquantized(view: GraphView, tensor: string): string | undefined {
  const node = view.producer(view.source(tensor))
  return node?.operator === 'DynamicQuantizeLinear' ? node.inputs[0] : undefined
}

/** The product as floating-point numbers: cast, then multiplied by the two scales. */
function scaledOutput(view: GraphView, product: string): string | undefined {
  const only = (name: string, operator: string): string | undefined => {
    const [node, ...others] = view.consumers(name)
    return node?.operator === operator && others.length === 0 ? node.outputs[0] : undefined
  }
  const cast = only(product, 'Cast')
  return cast === undefined ? undefined : only(cast, 'Mul')
}

/** Both inputs of a product are followed, so the time doubles with each level. */
const DEPTH_MAX = 8

/** The shape of a tensor that is computed only from constants; undefined for others. */
function weightDims(view: GraphView, name: string, depth = 0): readonly number[] | undefined {
  const constant = view.constant(name)
  if (constant !== undefined || depth > DEPTH_MAX) return constant?.dims
  const node = view.producer(name)
  const dimsOf = (index: number): readonly number[] | undefined =>
    weightDims(view, node?.inputs[index] ?? '', depth + 1)
  switch (node?.operator) {
    case 'Identity':
    case 'Cast':
    case 'DequantizeLinear':
      return dimsOf(0)
    case 'Mul': {
      const [a, b] = [dimsOf(0), dimsOf(1)]
      if (a === undefined || b === undefined) return undefined
      const [longer, shorter] = a.length >= b.length ? [a, b] : [b, a]
      const offset = longer.length - shorter.length
      return longer.map((size, axis) => Math.max(size, shorter[axis - offset] ?? 1))
    }
    case 'Transpose':
      return dimsOf(0)?.toReversed()
    default:
      return undefined
  }
}

/** Whether a graph computes in 16 bits, as its inputs show. */
export function isHalf({ inputs }: Graph): boolean {
  return inputs.some(({ onnxType }) => onnxType === ELEMENT_TYPES.float16.onnxType)
}
