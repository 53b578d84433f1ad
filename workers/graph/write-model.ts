import type {
  Attribute,
  Constant,
  Graph,
  GraphNode,
  GraphValue,
  Model,
  OperatorSet,
} from './model.ts'
import { field, floatField, numberField } from './wire.ts'

/** Kinds of attributes by their number in onnx.proto, and the field that holds their value. */
const ATTRIBUTE_TYPES = {
  float: 1,
  int: 2,
  string: 3,
  tensor: 4,
  graph: 5,
  floats: 6,
  ints: 7,
  strings: 8,
} as const

const DATA_IS_EXTERNAL = 1

/** Serializes a model (a ModelProto). Weights in files stay references to them. */
export function writeModel(model: Model): Uint8Array {
  return Buffer.concat([
    numberField(1, model.irVersion),
    ...model.rest,
    field(7, graphParts(model.graph)),
    ...model.opsets.map((opset) => field(8, opsetParts(opset))),
    ...model.functions.map(({ bytes }) => field(25, bytes)),
  ])
}

function opsetParts({ domain, version }: OperatorSet): Uint8Array[] {
  return [field(1, domain), numberField(2, version)]
}

/** A GraphProto. */
function graphParts({ name, nodes, constants, inputs, outputs, rest }: Graph): Uint8Array[] {
  return [
    ...nodes.map((node) => field(1, nodeParts(node))),
    field(2, name),
    ...constants.map((constant) => field(5, constantParts(constant))),
    ...inputs.map((value) => field(11, valueParts(value))),
    ...outputs.map((value) => field(12, valueParts(value))),
    ...rest,
  ]
}

/** A NodeProto. */
function nodeParts(node: GraphNode): Uint8Array[] {
  return [
    ...node.inputs.map((name) => field(1, name)),
    ...node.outputs.map((name) => field(2, name)),
    field(3, node.name),
    field(4, node.operator),
    ...Object.entries(node.attributes).map(([name, attribute]) =>
      field(5, attributeParts(name, attribute)),
    ),
    field(7, node.domain),
    ...node.rest,
  ]
}

/** An AttributeProto. */
function attributeParts(name: string, attribute: Attribute): readonly Uint8Array[] {
  if (attribute.kind === 'other') return [attribute.bytes]
  return [
    field(1, name),
    ...attributeValue(attribute),
    numberField(20, ATTRIBUTE_TYPES[attribute.kind]),
  ]
}

function attributeValue(attribute: Attribute): readonly Uint8Array[] {
  switch (attribute.kind) {
    case 'float':
      return [floatField(2, attribute.value)]
    case 'int':
      return [numberField(3, attribute.value)]
    case 'string':
      return [field(4, attribute.value)]
    case 'tensor':
      return [field(5, constantParts(attribute.value))]
    case 'graph':
      return [field(6, graphParts(attribute.value))]
    case 'floats':
      return attribute.value.map((value) => floatField(7, value))
    case 'ints':
      return attribute.value.map((value) => numberField(8, value))
    case 'strings':
      return attribute.value.map((value) => field(9, value))
    case 'other':
      return []
  }
}

/** A TensorProto. */
function constantParts({ name, onnxType, dims, data }: Constant): Uint8Array[] {
  return [
    ...dims.map((dim) => numberField(1, dim)),
    numberField(2, onnxType),
    field(8, name),
    ...dataParts(data),
  ]
}

function dataParts(data: Constant['data']): Uint8Array[] {
  switch (data.kind) {
    case 'bytes':
      return [field(9, data.bytes)]
    case 'other':
      return [data.fields]
    case 'file': {
      const { location, offset, length } = data
      const entries = { location, offset, ...(length !== undefined && { length }) }
      return [
        ...Object.entries(entries).map(([key, value]) =>
          field(13, [field(1, key), field(2, String(value))]),
        ),
        numberField(14, DATA_IS_EXTERNAL),
      ]
    }
  }
}

/** A ValueInfoProto. */
function valueParts({ name, onnxType, dims, rest }: GraphValue): Uint8Array[] {
  if (onnxType === undefined) return [field(1, name), ...rest]
  const sizes = dims?.map((dim) => {
    return field(1, typeof dim === 'number' ? numberField(1, dim) : dim && field(2, dim))
  })
  const tensor = [numberField(1, onnxType), ...(sizes ? [field(2, sizes)] : [])]
  return [field(1, name), field(2, field(1, tensor)), ...rest]
}
