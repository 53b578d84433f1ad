import {
  type Constant,
  type Graph,
  type GraphNode,
  int,
  makeConstant,
  makeNode,
} from '#workers/graph/model.ts'
import { countElements, ELEMENT_TYPES } from '#workers/tensor/element-type.ts'

const HALF = ELEMENT_TYPES.float16.onnxType
const SINGLE = ELEMENT_TYPES.float32.onnxType

/**
 * A graph that computes in single precision. Weights of half precision that are in a file are cast
 * where they enter.
 */
export function inSinglePrecision(graph: Graph): Graph {
  const casts: GraphNode[] = []
  const constants = graph.constants.map((constant) => {
    if (constant.onnxType !== HALF || constant.data.kind === 'bytes') return widened(constant)
    const name = `${constant.name}/half`
    casts.push(makeNode('Cast', [name], constant.name, { attributes: { to: int(SINGLE) } }))
    return { ...constant, name }
  })
  const nodes = graph.nodes.map((node) => {
    const { value, to } = node.attributes
    const isToHalf = node.operator === 'Cast' && to?.kind === 'int' && Number(to.value) === HALF
    return {
      ...node,
      attributes: {
        ...node.attributes,
        ...(isToHalf && { to: int(SINGLE) }),
        ...(value?.kind === 'tensor' && { value: { ...value, value: widened(value.value) } }),
      },
    }
  })
  const toSingle = <Value extends { readonly onnxType: number | undefined }>(
    value: Value,
  ): Value => (value.onnxType === HALF ? { ...value, onnxType: SINGLE } : value)
  return {
    ...graph,
    nodes: [...casts, ...nodes],
    constants,
    inputs: graph.inputs.map(toSingle),
    outputs: graph.outputs.map(toSingle),
  }
}

/** A constant of half precision at hand, in single precision; others as they are. */
function widened(constant: Constant): Constant {
  const { name, onnxType, dims, data } = constant
  if (onnxType !== HALF || data.kind !== 'bytes') return constant
  const halves = new Float16Array(Uint8Array.from(data.bytes).buffer, 0, countElements(dims))
  return makeConstant(name, 'float32', dims, Float32Array.from(halves))
}
