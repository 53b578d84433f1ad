import { ancestryOf, sourceOfTranspose } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { type GraphNode, type GraphValue, type Model, makeValue } from '#workers/graph/model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { ExecutionProvider } from '#workers/runtime/session-options.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'
import {
  allocateElements,
  countElements,
  type ElementType,
  type TensorData,
} from '#workers/tensor/element-type.ts'

/** The source of a model, and the runtime. */
export interface ProbeContext {
  readonly runtime: Runtime
  readonly file: string
  /** The folder with the files of its weights. */
  readonly folder: string
  readonly executionProvider: ExecutionProvider
}

/** A tensor that a part of a graph is run on. */
export interface ProbeTensor {
  readonly type: ElementType
  readonly dims: readonly number[]
  readonly values: readonly number[] | Float32Array | number
}

/** A part of a model that is run alone to test its function. */
export interface Probe {
  /**
   * Returns the wanted tensors, in order. Values for tensors that the part does not read are
   * ignored.
   */
  run(feeds: Readonly<Record<string, ProbeTensor>>): Promise<ProbeResult[]>
  /** The names, types and shapes of the wanted tensors, in order, as the runtime reports them. */
  readonly outputs: ModelSession['outputs']
  close(): Promise<void>
}

/** Output of a part of a graph. */
export interface ProbeResult {
  readonly type: ElementType | undefined
  readonly dims: readonly number[]
  readonly values: Float32Array
}

const FOUR_AXES = ['', '', '', '']
const NODES_MAX = 4000
/**
 * Operators with weights. A part that contains some is more than masks, rotations and attention.
 */
const OF_WEIGHTS = /^(MatMulNBits|Gemm|Conv|QLinear|MatMulInteger|DynamicQuantize|QMoE|MoE)/

/**
 * Opens the part of a model that computes the wanted tensors from a boundary: names and element
 * types of tensors of four axes. Undefined when that part contains layers of the model.
 */
export async function openProbe(
  context: ProbeContext,
  model: Model,
  part: {
    readonly wanted: readonly string[]
    readonly boundary: Readonly<Record<string, ElementType>>
  },
): Promise<Probe | undefined> {
  const { wanted, boundary } = part
  const view = new GraphView(model.graph)
  // Some graphs read the size of a head from a tensor before its transposition.
  const sources = new Map<string, string>()
  for (const name of Object.keys(boundary)) {
    const source = sourceOfTranspose(view, name)
    if (source !== undefined && !(source in boundary)) sources.set(source, name)
  }
  const ends = new Set([...Object.keys(boundary), ...sources.keys()])
  const { nodes, constants, inputs } = ancestryOf(view, wanted, ends)
  if (nodes.length > NODES_MAX || nodes.some((node) => isOfWeights(node, view))) return undefined
  const declared = new Map(model.graph.inputs.map((value) => [value.name, value]))
  const values = inputs.map((name): GraphValue | undefined => {
    const type = boundary[sources.get(name) ?? name]
    return type === undefined ? declared.get(name) : makeValue(name, type, FOUR_AXES)
  })
  const known = values.filter((value) => value !== undefined)
  if (known.length < values.length) return undefined
  const outputs = wanted.map((name) => ({ name, onnxType: undefined, dims: undefined, rest: [] }))
  const graph = { name: 'probe', nodes, constants, inputs: known, outputs, rest: [] }
  const probe = await openModel(context, { ...model, graph, rest: [] })
  return { ...probe, run: (feeds) => probe.run({ ...feeds, ...transposedFeeds(feeds, sources) }) }
}

function transposedFeeds(
  feeds: Readonly<Record<string, ProbeTensor>>,
  sources: ReadonlyMap<string, string>,
): Record<string, ProbeTensor> {
  const found: Record<string, ProbeTensor> = {}
  for (const [source, name] of sources) {
    const feed = feeds[name]
    if (feed !== undefined) found[source] = transposed(feed)
  }
  return found
}

/** [batch, heads, length, size] as [batch, length, heads, size], of one row. */
function transposed({ type, dims, values }: ProbeTensor): ProbeTensor {
  const [rows = 1, heads = 1, length = 1, size = 1] = dims
  const shape = [rows, length, heads, size]
  if (typeof values === 'number') return { type, dims: shape, values }
  const moved = new Float32Array(values.length)
  for (let index = 0; index < values.length; index += 1) {
    const [head, at] = [Math.floor(index / (length * size)), Math.floor(index / size) % length]
    moved[(at * heads + head) * size + (index % size)] = values[index] as number
  }
  return { type, dims: shape, values: moved }
}

/** Opens a complete model to run it on chosen values. */
export async function openModel(context: ProbeContext, model: Model): Promise<Probe> {
  const { runtime, file, folder, executionProvider } = context
  const bytes = writeModel(model)
  const options = { executionProvider, intraOpThreads: 1 }
  const session = await runtime.load({ name: `${file} (a part of it)`, bytes, folder }, options)
  return {
    run: (feeds) => runProbe(runtime, session, feeds),
    outputs: session.outputs,
    close: () => session.close(),
  }
}

function isOfWeights({ operator, inputs }: GraphNode, view: GraphView): boolean {
  if (OF_WEIGHTS.test(operator)) return true
  if (operator !== 'MatMul') return false
  return inputs.some((name) => view.constant(name)?.data.kind === 'file')
}

async function runProbe(
  runtime: Runtime,
  session: ModelSession,
  feeds: Readonly<Record<string, ProbeTensor>>,
): Promise<ProbeResult[]> {
  const used: Record<string, Tensor> = {}
  for (const { name } of session.inputs) {
    const feed = feeds[name]
    if (feed) used[name] = makeTensor(runtime, feed)
  }
  const wanted = Object.fromEntries(session.outputs.map(({ name }) => [name, null]))
  let results: Record<string, Tensor> = {}
  try {
    results = await session.run(used, wanted)
    return session.outputs.map(({ name, type }) => {
      const { dims, data } = results[name] as Tensor
      return { type, dims, values: toFloats(data) }
    })
  } finally {
    for (const tensor of [...Object.values(used), ...Object.values(results)]) tensor.dispose()
  }
}

/** A copy; a table of all positions is long, so that its elements are not converted one by one. */
function toFloats(data: TensorData): Float32Array {
  if (data instanceof Float32Array) return data.slice()
  return Float32Array.from(data as ArrayLike<number | bigint>, Number)
}

function makeTensor(runtime: Runtime, { type, dims, values }: ProbeTensor): Tensor {
  const data = allocateElements(type, countElements(dims)) as Float32Array | BigInt64Array
  const convert = (value: number): never => (type === 'int64' ? BigInt(value) : value) as never
  if (typeof values === 'number') data.fill(convert(values))
  else
    for (let index = 0; index < values.length; index += 1) {
      data[index] = convert(values[index] as number)
    }
  return runtime.tensor(type, data, dims)
}
