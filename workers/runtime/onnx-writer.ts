import { ELEMENT_TYPES, type ElementType } from '#workers/tensor/element-type.ts'

/** One operator of a graph. */
interface OperatorNode {
  readonly operator: string
  readonly inputs: readonly string[]
  readonly output: string
  /** Attributes that are lists of integers. */
  readonly attributes?: Readonly<Record<string, readonly number[]>>
}

/** An input or output of the graph; its axes may have any size. */
interface GraphTensor {
  readonly name: string
  readonly type: ElementType
  readonly rank: number
}

/** A constant of the graph. */
interface GraphConstant {
  readonly name: string
  readonly dims: readonly number[]
  readonly values: Float32Array
}

/** A graph with its operators in topological order. */
interface GraphPlan {
  readonly name: string
  readonly nodes: readonly OperatorNode[]
  readonly constants?: readonly GraphConstant[]
  readonly inputs: readonly GraphTensor[]
  readonly outputs: readonly GraphTensor[]
}

const IR_VERSION = 8
const OPERATOR_SET = 13
const INTEGER_LIST = 7

/**
 * Serializes a small ONNX model. Written by hand, because the few fields of onnx.proto that it uses
 * are shorter than a library's API.
 */
export function writeModel({
  name,
  nodes,
  constants = [],
  inputs,
  outputs,
}: GraphPlan): Uint8Array {
  const graph = Buffer.concat([
    ...nodes.map((node) => field(1, nodeBytes(node))),
    field(2, name),
    ...constants.map((constant) => field(5, constantBytes(constant))),
    ...inputs.map((tensor) => field(11, tensorBytes(tensor))),
    ...outputs.map((tensor) => field(12, tensorBytes(tensor))),
  ])
  return Buffer.concat([
    number(1, IR_VERSION),
    field(7, graph),
    field(8, Buffer.concat([field(1, ''), number(2, OPERATOR_SET)])),
  ])
}

/** A NodeProto. */
function nodeBytes({ operator, inputs, output, attributes = {} }: OperatorNode): Buffer {
  return Buffer.concat([
    ...inputs.map((name) => field(1, name)),
    field(2, output),
    field(4, operator),
    ...Object.entries(attributes).map(([name, values]) =>
      field(
        5,
        Buffer.concat([
          field(1, name),
          ...values.map((value) => number(8, value)),
          number(20, INTEGER_LIST),
        ]),
      ),
    ),
  ])
}

/** A TensorProto. */
function constantBytes({ name, dims, values }: GraphConstant): Buffer {
  const { buffer, byteOffset, byteLength } = values
  return Buffer.concat([
    ...dims.map((dim) => number(1, dim)),
    number(2, ELEMENT_TYPES.float32.onnxType),
    field(8, name),
    field(9, Buffer.from(buffer, byteOffset, byteLength)),
  ])
}

/** A ValueInfoProto. */
function tensorBytes({ name, type, rank }: GraphTensor): Buffer {
  const shape = Buffer.concat(Array.from({ length: rank }, () => field(1, '')))
  const tensor = Buffer.concat([number(1, ELEMENT_TYPES[type].onnxType), field(2, shape)])
  return Buffer.concat([field(1, name), field(2, field(1, tensor))])
}

/** A length-delimited field: a string or a message. */
function field(id: number, content: Buffer | string): Buffer {
  const bytes = Buffer.from(content)
  return Buffer.concat([varint(id * 8 + 2), varint(bytes.length), bytes])
}

/** A varint field. */
function number(id: number, value: number): Buffer {
  return Buffer.concat([varint(id * 8), varint(value)])
}

function varint(value: number): Buffer {
  const bytes: number[] = []
  let rest = value
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128)
  return Buffer.from([...bytes, rest])
}
