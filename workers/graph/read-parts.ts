import type {
  Attribute,
  Constant,
  ConstantData,
  Graph,
  GraphNode,
  GraphValue,
  Model,
  ModelFunction,
  OperatorSet,
} from './model.ts'
import { type Field, FORMS, field, fieldsOf, signed, varintsOf } from './wire.ts'

type FieldWithBody = Field & { readonly body: Uint8Array }

const PARTS_MAX = 4_000_000 // one with thousands of experts has some 2,000,000
const GRAPHS_DEPTH_MAX = 32 // as ONNX Runtime reads them

/** Counts the parts of a model as they are read. All methods throw `RangeError` beyond a limit. */
export class PartBudget {
  #parts = 0
  #depth = 0

  /** Reads a graph within another one. */
  readNested<T>(read: () => T): T {
    if (this.#depth === GRAPHS_DEPTH_MAX) throw new RangeError('its graphs are nested too deeply')
    this.#depth += 1
    const result = read()
    this.#depth -= 1
    return result
  }

  *fieldsOf(bytes: Uint8Array): Generator<FieldWithBody> {
    for (const part of fieldsOf(bytes)) {
      this.#count()
      yield part
    }
  }

  *varintsOf(part: FieldWithBody): Generator<bigint> {
    for (const value of varintsOf(part)) {
      this.#count()
      yield value
    }
  }

  #count(): void {
    this.#parts += 1
    if (this.#parts > PARTS_MAX) throw new RangeError(`it has over ${PARTS_MAX} parts`)
  }
}

/** A part of a graph, in the order in which they were found. */
export type GraphPart =
  | { readonly kind: 'node'; readonly node: GraphNode }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'constant'; readonly constant: Constant }
  | { readonly kind: 'input' | 'output'; readonly value: GraphValue }
  | { readonly kind: 'derived' }
  | { readonly kind: 'rest'; readonly bytes: Uint8Array }

/** A model from the fields of a ModelProto other than its graph. */
export function assembleModel(fields: Uint8Array, graph: Graph, budget: PartBudget): Model {
  const opsets: OperatorSet[] = []
  const functions: ModelFunction[] = []
  const rest: Uint8Array[] = []
  let irVersion = 0
  for (const part of budget.fieldsOf(fields)) {
    if (part.number === 1) irVersion = Number(part.value)
    else if (part.number === 8) opsets.push(readOperatorSet(part.body, budget))
    else if (part.number === 25) functions.push(readFunction(part.body, budget))
    else rest.push(fields.subarray(part.from, part.end))
  }
  return { irVersion, opsets, graph, functions, rest }
}

/** A field of a GraphProto. */
export function readGraphPart(part: FieldWithBody, budget: PartBudget): GraphPart {
  switch (part.number) {
    case 1:
      return { kind: 'node', node: readNode(part.body, budget) }
    case 2:
      return { kind: 'name', name: text(part.body) }
    case 5:
      return { kind: 'constant', constant: assembleConstant(part.body, budget) }
    case 11:
      return { kind: 'input', value: readValue(part.body, budget) }
    case 12:
      return { kind: 'output', value: readValue(part.body, budget) }
    case 13: // shapes inside the graph, which are derived from the rest of it
      return { kind: 'derived' }
    default:
      return { kind: 'rest', bytes: field(part.number, part.body) }
  }
}

/** A graph from its parts. */
export function assembleGraph(parts: readonly GraphPart[]): Graph {
  const nodes: GraphNode[] = []
  const constants: Constant[] = []
  const inputs: GraphValue[] = []
  const outputs: GraphValue[] = []
  const rest: Uint8Array[] = []
  let name = ''
  for (const part of parts) {
    if (part.kind === 'node') nodes.push(part.node)
    else if (part.kind === 'constant') constants.push(part.constant)
    else if (part.kind === 'input') inputs.push(part.value)
    else if (part.kind === 'output') outputs.push(part.value)
    else if (part.kind === 'name') name = part.name
    else if (part.kind === 'rest') rest.push(part.bytes)
  }
  return { name, nodes, constants, inputs, outputs, rest }
}

function readGraph(bytes: Uint8Array, budget: PartBudget): Graph {
  return budget.readNested(() =>
    assembleGraph(Array.from(budget.fieldsOf(bytes), (part) => readGraphPart(part, budget))),
  )
}

function readOperatorSet(bytes: Uint8Array, budget: PartBudget): OperatorSet {
  let opset = { domain: '', version: 0 }
  for (const part of budget.fieldsOf(bytes)) {
    if (part.number === 1) opset = { ...opset, domain: text(part.body) }
    if (part.number === 2) opset = { ...opset, version: Number(part.value) }
  }
  return opset
}

function readFunction(bytes: Uint8Array, budget: PartBudget): ModelFunction {
  const nodes: GraphNode[] = []
  let [name, domain] = ['', '']
  for (const part of budget.fieldsOf(bytes)) {
    if (part.number === 1) name = text(part.body)
    if (part.number === 7) nodes.push(readNode(part.body, budget))
    if (part.number === 10) domain = text(part.body)
  }
  return { name, domain, nodes, bytes }
}

function readNode(bytes: Uint8Array, budget: PartBudget): GraphNode {
  const inputs: string[] = []
  const outputs: string[] = []
  const attributes: [string, Attribute][] = []
  const rest: Uint8Array[] = []
  let [name, operator, domain] = ['', '', '']
  for (const part of budget.fieldsOf(bytes)) {
    if (part.number === 1) inputs.push(text(part.body))
    else if (part.number === 2) outputs.push(text(part.body))
    else if (part.number === 3) name = text(part.body)
    else if (part.number === 4) operator = text(part.body)
    else if (part.number === 5) attributes.push(readAttribute(part.body, budget))
    else if (part.number === 7) domain = text(part.body)
    else rest.push(bytes.subarray(part.from, part.end))
  }
  const named = Object.fromEntries(attributes)
  return { name, operator, domain, inputs, outputs, attributes: named, rest }
}

const ATTRIBUTE_KINDS = [
  undefined,
  'float',
  'int',
  'string',
  'tensor',
  'graph',
  'floats',
  'ints',
  'strings',
] as const

/**
 * An attribute and its name. Older files state no type, which then follows from the value's field.
 */
function readAttribute(bytes: Uint8Array, budget: PartBudget): [string, Attribute] {
  const parts = Array.from(budget.fieldsOf(bytes))
  const find = (number: number): FieldWithBody | undefined =>
    parts.find((part) => part.number === number)
  const name = text(find(1)?.body ?? new Uint8Array())
  const stated = Number(find(20)?.value ?? 0n)
  const implied = parts.find(({ number }) => number >= 2 && number <= 9)?.number ?? 1
  const kind = find(21) ? undefined : ATTRIBUTE_KINDS[stated || implied - 1]
  return [name, readAttributeValue(kind, parts, budget) ?? { kind: 'other', bytes }]
}

function readAttributeValue(
  kind: (typeof ATTRIBUTE_KINDS)[number],
  parts: readonly FieldWithBody[],
  budget: PartBudget,
): Attribute | undefined {
  const all = (number: number): FieldWithBody[] => parts.filter((part) => part.number === number)
  const body = (number: number): Uint8Array => all(number)[0]?.body ?? new Uint8Array()
  switch (kind) {
    case 'float':
      return { kind, value: floats(body(2))[0] ?? 0 }
    case 'int':
      return { kind, value: signed(all(3)[0]?.value ?? 0n) }
    case 'string':
      return isText(body(4)) ? { kind, value: text(body(4)) } : undefined
    case 'tensor':
      return { kind, value: assembleConstant(body(5), budget) }
    case 'graph':
      return { kind, value: readGraph(body(6), budget) }
    case 'floats':
      return { kind, value: all(7).flatMap((part) => floats(part.body)) }
    case 'ints':
      return { kind, value: all(8).flatMap((part) => Array.from(budget.varintsOf(part), signed)) }
    case 'strings':
      return all(9).every((part) => isText(part.body))
        ? { kind, value: all(9).map((part) => text(part.body)) }
        : undefined
    default:
      return undefined
  }
}

/** Bytes of an element in each of the typed lists of a TensorProto, by the ONNX type. */
const BYTES_OF_INT32_DATA: Readonly<Record<number, number>> = {
  2: 1,
  3: 1,
  4: 2,
  5: 2,
  6: 4,
  9: 1,
  10: 2,
  16: 2,
}

/** A TensorProto whose data become bytes, even if a typed list holds them. */
export function assembleConstant(bytes: Uint8Array, budget: PartBudget): Constant {
  const dims: number[] = []
  const other: Uint8Array[] = []
  const lists = new Map<number, FieldWithBody[]>()
  let [name, onnxType] = ['', 0]
  for (const part of budget.fieldsOf(bytes)) {
    if (part.number === 1) for (const dim of budget.varintsOf(part)) dims.push(Number(signed(dim)))
    else if (part.number === 2) onnxType = Number(part.value)
    else if (part.number === 8) name = text(part.body)
    else {
      other.push(bytes.subarray(part.from, part.end))
      const list = lists.get(part.number)
      if (list) list.push(part)
      else lists.set(part.number, [part])
    }
  }
  const data = readData(onnxType, lists, budget) ?? { kind: 'other', fields: Buffer.concat(other) }
  return { name, onnxType, dims, data }
}

function readData(
  onnxType: number,
  lists: ReadonlyMap<number, readonly FieldWithBody[]>,
  budget: PartBudget,
): ConstantData | undefined {
  const joined = (number: number): Uint8Array =>
    Buffer.concat((lists.get(number) ?? []).map(({ body }) => body))
  if (lists.has(13)) return readReference(lists.get(13) ?? [], budget)
  if (lists.has(9)) return { kind: 'bytes', bytes: joined(9) }
  const element = BYTES_OF_INT32_DATA[onnxType]
  if (lists.has(5) && element !== undefined) {
    const bytes = (lists.get(5) ?? []).flatMap((part) => [...budget.varintsOf(part)])
    return { kind: 'bytes', bytes: integerBytes(bytes, element) }
  }
  if (lists.has(7) && onnxType === 7) {
    const values = (lists.get(7) ?? []).flatMap((part) => [...budget.varintsOf(part)])
    return { kind: 'bytes', bytes: integerBytes(values, 8) }
  }
  // Floating-point numbers are packed as they are in memory.
  if (lists.has(4) && onnxType === 1) return { kind: 'bytes', bytes: joined(4) }
  if (lists.has(10) && onnxType === 11) return { kind: 'bytes', bytes: joined(10) }
  const isEmpty = [4, 5, 6, 7, 10, 11].every((number) => !lists.has(number))
  return isEmpty ? { kind: 'bytes', bytes: new Uint8Array() } : undefined
}

function readReference(entries: readonly FieldWithBody[], budget: PartBudget): ConstantData {
  const values = new Map<string, string>()
  for (const { body } of entries) {
    const [key, value] = [1, 2].map((number) => {
      return text([...budget.fieldsOf(body)].find((part) => part.number === number)?.body ?? body)
    })
    values.set(key ?? '', value ?? '')
  }
  const length = values.get('length')
  return {
    kind: 'file',
    location: values.get('location') ?? '',
    offset: Number(values.get('offset') ?? 0),
    length: length === undefined ? undefined : Number(length),
  }
}

function integerBytes(values: readonly bigint[], element: number): Uint8Array {
  const bytes = Buffer.alloc(values.length * 8)
  for (const [index, value] of values.entries()) {
    bytes.writeBigUInt64LE(value, index * 8)
    bytes.copyWithin(index * element, index * 8, index * 8 + element)
  }
  return bytes.subarray(0, values.length * element)
}

function readValue(bytes: Uint8Array, budget: PartBudget): GraphValue {
  const rest: Uint8Array[] = []
  let name = ''
  let type: { onnxType: number; dims: (number | string)[] | undefined } | undefined
  for (const part of budget.fieldsOf(bytes)) {
    if (part.number === 1) name = text(part.body)
    else {
      const found = part.number === 2 ? readTensorType(part.body, budget) : undefined
      if (found) type = found
      else rest.push(bytes.subarray(part.from, part.end))
    }
  }
  return { name, onnxType: type?.onnxType, dims: type?.dims, rest }
}

function readTensorType(
  bytes: Uint8Array,
  budget: PartBudget,
): { onnxType: number; dims: (number | string)[] | undefined } | undefined {
  const tensor = [...budget.fieldsOf(bytes)].find(({ number }) => number === 1)
  if (tensor?.form !== FORMS.withLength) return undefined
  let onnxType = 0
  let dims: (number | string)[] | undefined
  for (const part of budget.fieldsOf(tensor.body)) {
    if (part.number === 1) onnxType = Number(part.value)
    if (part.number === 2)
      dims = Array.from(budget.fieldsOf(part.body), ({ body }) => readSize(body, budget))
  }
  return { onnxType, dims }
}

function readSize(bytes: Uint8Array, budget: PartBudget): number | string {
  for (const part of budget.fieldsOf(bytes)) {
    if (part.number === 1) return Number(signed(part.value))
    if (part.number === 2) return text(part.body)
  }
  return ''
}

function floats(bytes: Uint8Array): number[] {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return Array.from({ length: Math.floor(bytes.length / 4) }, (_, at) => view.readFloatLE(at * 4))
}

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()
}

function isText(bytes: Uint8Array): boolean {
  return Buffer.from(text(bytes)).equals(bytes)
}
