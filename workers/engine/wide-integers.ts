import { renameTensors } from '#workers/graph/extract.ts'
import { type GraphValue, int, type Model, makeNode } from '#workers/graph/model.ts'

/** Element types by their numbers in onnx.proto. */
const INT32 = 6
const INT64 = 7

const INTEGERS: ReadonlySet<string> = new Set(['input_ids', 'attention_mask', 'position_ids'])

/** A decoder whose integers have 32 bits, with casts from the 64 bits in which they are passed. */
export function withWideIntegers(model: Model): Model {
  const { graph } = model
  const narrow = graph.inputs.filter(
    ({ name, onnxType }) => INTEGERS.has(name) && onnxType === INT32,
  )
  const names = new Map(narrow.map(({ name }) => [name, `${name} (32 bits)`] as const))
  const renamed = names.size === 0 ? undefined : renameTensors(graph, names)
  if (renamed === undefined) return model
  const casts = [...names].map(([name, inside]) =>
    makeNode('Cast', [name], inside, { attributes: { to: int(INT32) } }),
  )
  const widen = (value: GraphValue): GraphValue =>
    names.has(value.name) ? { ...value, onnxType: INT64 } : value
  return {
    ...model,
    graph: { ...renamed, inputs: graph.inputs.map(widen), nodes: [...casts, ...renamed.nodes] },
  }
}
