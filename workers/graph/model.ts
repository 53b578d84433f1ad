import { ELEMENT_TYPES, type ElementType, type TensorData } from '#workers/tensor/element-type.ts'

/** An ONNX model as data (a ModelProto in onnx.proto). Large weights stay in their files. */
export interface Model {
  readonly irVersion: number
  readonly opsets: readonly OperatorSet[]
  readonly graph: Graph
  /** Operators that the model defines itself. */
  readonly functions: readonly ModelFunction[]
  /** Uninterpreted fields (producer, metadata), as they were read. */
  readonly rest: readonly Uint8Array[]
}

/** The version of a domain's operators. The standard domain is the empty string. */
export interface OperatorSet {
  readonly domain: string
  readonly version: number
}

/** Operators in topological order. */
export interface Graph {
  readonly name: string
  readonly nodes: readonly GraphNode[]
  readonly constants: readonly Constant[]
  readonly inputs: readonly GraphValue[]
  readonly outputs: readonly GraphValue[]
  readonly rest: readonly Uint8Array[]
}

/** An operator and the tensors that it reads and writes; an empty name is an omitted one. */
export interface GraphNode {
  readonly name: string
  readonly operator: string
  readonly domain: string
  readonly inputs: readonly string[]
  readonly outputs: readonly string[]
  readonly attributes: Readonly<Record<string, Attribute>>
  readonly rest: readonly Uint8Array[]
}

/** A setting of an operator. `other` is a rare kind, as it was read. */
export type Attribute =
  | { readonly kind: 'float'; readonly value: number }
  | { readonly kind: 'int'; readonly value: bigint }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'tensor'; readonly value: Constant }
  | { readonly kind: 'graph'; readonly value: Graph }
  | { readonly kind: 'floats'; readonly value: readonly number[] }
  | { readonly kind: 'ints'; readonly value: readonly bigint[] }
  | { readonly kind: 'strings'; readonly value: readonly string[] }
  | { readonly kind: 'other'; readonly bytes: Uint8Array }

/** A constant tensor of a graph. */
export interface Constant {
  readonly name: string
  /** Number of the element type in ONNX; see `findElementType`. */
  readonly onnxType: number
  readonly dims: readonly number[]
  readonly data: ConstantData
}

/**
 * Elements in little-endian order, a range of a file beside the graph, or fields of a rare kind as
 * they were read.
 */
export type ConstantData =
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | {
      readonly kind: 'file'
      readonly location: string
      readonly offset: number
      readonly length: number | undefined
    }
  | { readonly kind: 'other'; readonly fields: Uint8Array }

/** An input or output: its type and its sizes, by number or by symbol. */
export interface GraphValue {
  readonly name: string
  /** Undefined for values that are not tensors, whose type is in `rest`. */
  readonly onnxType: number | undefined
  /** Undefined if the rank is unknown. */
  readonly dims: readonly (number | string)[] | undefined
  readonly rest: readonly Uint8Array[]
}

/** An operator that the model defines by other operators. */
export interface ModelFunction {
  readonly name: string
  readonly domain: string
  readonly nodes: readonly GraphNode[]
  /** The whole definition, as it was read. */
  readonly bytes: Uint8Array
}

/** The parts of a node beyond its operator. */
interface NodeParts {
  readonly domain?: string
  readonly attributes?: Readonly<Record<string, Attribute>>
}

/** A node with one or more outputs; it is named after its first. */
export function makeNode(
  operator: string,
  inputs: readonly string[],
  outputs: string | readonly string[],
  { domain = '', attributes = {} }: NodeParts = {},
): GraphNode {
  const names = typeof outputs === 'string' ? [outputs] : outputs
  return {
    name: `${names[0]}/${operator}`,
    operator,
    domain,
    inputs,
    outputs: names,
    attributes,
    rest: [],
  }
}

/** A whole-number attribute. */
export function int(value: number): Attribute {
  return { kind: 'int', value: BigInt(value) }
}

/** An attribute of whole numbers. */
export function ints(...values: readonly number[]): Attribute {
  return { kind: 'ints', value: values.map(BigInt) }
}

/** A floating-point attribute. */
export function float(value: number): Attribute {
  return { kind: 'float', value }
}

/** A constant over the given elements. */
export function makeConstant(
  name: string,
  type: ElementType,
  dims: readonly number[],
  values: TensorData,
): Constant {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
  return { name, onnxType: ELEMENT_TYPES[type].onnxType, dims, data: { kind: 'bytes', bytes } }
}

/** A constant list of 64-bit integers. */
export function int64Constant(name: string, values: readonly number[]): Constant {
  return makeConstant(name, 'int64', [values.length], BigInt64Array.from(values, BigInt))
}

/** An input or output. Sizes are numbers or symbols; undefined leaves the rank open. */
export function makeValue(
  name: string,
  type: ElementType,
  dims: readonly (number | string)[] | undefined,
): GraphValue {
  return { name, onnxType: ELEMENT_TYPES[type].onnxType, dims, rest: [] }
}

/** The parts of a small model. */
interface ModelParts {
  readonly name: string
  readonly nodes: readonly GraphNode[]
  readonly constants?: readonly Constant[]
  readonly inputs: readonly GraphValue[]
  readonly outputs: readonly GraphValue[]
  readonly opsets?: readonly OperatorSet[]
  readonly irVersion?: number
}

const IR_VERSION = 8
const OPERATOR_SETS = [{ domain: '', version: 13 }]

/** A model of the given operators, in topological order. */
export function makeModel({
  constants = [],
  opsets = OPERATOR_SETS,
  irVersion = IR_VERSION,
  ...parts
}: ModelParts): Model {
  const graph = { ...parts, constants, rest: [] }
  return { irVersion, opsets, graph, functions: [], rest: [] }
}
