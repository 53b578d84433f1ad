import { ELEMENT_TYPES, type ElementType } from '#workers/tensor/element-type.ts'

const IR_VERSION = 8
const OPERATOR_SET = 13
const INTEGERS = ['starts', 'ends', 'axes', 'pads']

/**
 * An ONNX model that cuts a piece out of each of its inputs and surrounds it with zeros: for each type
 * `target.i` = Pad(Slice(`source.i`, starts, ends, axes), pads), tensors of four axes. Written by hand,
 * because the few fields of the format (onnx.proto) that it takes are shorter than a library's API.
 */
export function makeCutGraph(types: readonly ElementType[]): Uint8Array {
  const nodes = types.flatMap((_, index) => [
    node('Slice', [`source.${index}`, 'starts', 'ends', 'axes'], `piece.${index}`),
    node('Pad', [`piece.${index}`, 'pads'], `target.${index}`),
  ])
  const inputs = [
    ...types.map((type, index) => tensorInfo(`source.${index}`, type, 4)),
    ...INTEGERS.map((name) => tensorInfo(name, 'int64', 1)),
  ]
  const outputs = types.map((type, index) => tensorInfo(`target.${index}`, type, 4))
  const graph = Buffer.concat([
    ...nodes.map((bytes) => field(1, bytes)),
    field(2, 'cut'),
    ...inputs.map((bytes) => field(11, bytes)),
    ...outputs.map((bytes) => field(12, bytes)),
  ])
  return Buffer.concat([
    number(1, IR_VERSION),
    field(7, graph),
    field(8, Buffer.concat([field(1, ''), number(2, OPERATOR_SET)])),
  ])
}

/** A NodeProto of one output. */
function node(operator: string, inputs: readonly string[], output: string): Buffer {
  return Buffer.concat([
    ...inputs.map((name) => field(1, name)),
    field(2, output),
    field(4, operator),
  ])
}

/** A ValueInfoProto of a tensor whose axes are of any size. */
function tensorInfo(name: string, type: ElementType, rank: number): Buffer {
  const shape = Buffer.concat(Array.from({ length: rank }, () => field(1, '')))
  const tensor = Buffer.concat([number(1, ELEMENT_TYPES[type].onnxType), field(2, shape)])
  return Buffer.concat([field(1, name), field(2, field(1, tensor))])
}

/** A field of the wire format that is a text or a message. */
function field(id: number, content: Buffer | string): Buffer {
  const bytes = Buffer.from(content)
  return Buffer.concat([varint(id * 8 + 2), varint(bytes.length), bytes])
}

/** A field that is a number. */
function number(id: number, value: number): Buffer {
  return Buffer.concat([varint(id * 8), varint(value)])
}

function varint(value: number): Buffer {
  const bytes: number[] = []
  let rest = value
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128)
  return Buffer.from([...bytes, rest])
}
