import { openModel, type ProbeContext } from '#workers/engine/rewrite/graph-probe.ts'
import { ancestryOf } from '#workers/graph/extract.ts'
import type { GraphView } from '#workers/graph/graph-view.ts'
import { type GraphNode, type Model, makeNode, makeValue } from '#workers/graph/model.ts'

import { isHalf, type LinearModule } from './target-modules.ts'

/** Rows of the identity matrix in one run: for the widest layers they take some 30 MB. */
const ROWS_MAX = 256
/** Inputs of operators that are optional biases, from this index on. */
const BIASES: Readonly<Record<string, number>> = { MatMulNBits: 5, DynamicQuantizeMatMul: 4 }

/**
 * The weights of a linear layer as [in, out], dequantized by the runtime. A float matrix is read as
 * the graph computes it; quantized weights are multiplied by the identity matrix, whose ones and
 * zeros lose nothing when they are quantized.
 */
export async function readWeights(
  context: ProbeContext,
  { view, model }: { readonly view: GraphView; readonly model: Model },
  module: LinearModule,
): Promise<Float32Array> {
  return module.form === 'matrix'
    ? await readMatrix(context, { view, model }, module)
    : await multiplyOnes(context, { view, model }, module)
}

async function readMatrix(
  context: ProbeContext,
  { view, model }: { readonly view: GraphView; readonly model: Model },
  { weight, isTransposed }: LinearModule,
): Promise<Float32Array> {
  const { nodes, constants } = ancestryOf(view, [weight])
  // A constant cannot be an output itself.
  const last = isTransposed
    ? makeNode('Transpose', [weight], 'weights')
    : makeNode('Identity', [weight], 'weights')
  return await runAlone(context, model, { nodes: [...nodes, last], constants }, [])
}

async function multiplyOnes(
  context: ProbeContext,
  { view, model }: { readonly view: GraphView; readonly model: Model },
  { node, input, output, inSize, outSize }: LinearModule,
): Promise<Float32Array> {
  const { nodes, constants } = ancestryOf(view, [output], new Set([input]))
  const parts = {
    nodes: [
      ...nodes.map((other) => (other === node ? precise(other) : other)),
      makeNode('Identity', [output], 'weights'),
    ],
    constants: constants.filter(({ name }) => name !== input),
    input,
  }
  const weights = new Float32Array(inSize * outSize)
  const blocks = Array.from({ length: Math.ceil(inSize / ROWS_MAX) }, (_, block) => {
    const first = block * ROWS_MAX
    return { first, rows: Math.min(ROWS_MAX, inSize - first) }
  })
  const runs = blocks.map(({ first, rows }) => {
    const values = new Float32Array(rows * inSize)
    for (let row = 0; row < rows; row += 1) values[row * inSize + first + row] = 1
    return { dims: [1, rows, inSize], values }
  })
  weights.set(await runAlone(context, model, parts, runs))
  return weights
}

/** The operator without its bias, with activations of full precision. */
function precise(node: GraphNode): GraphNode {
  const { accuracy_level: _level, ...attributes } = node.attributes
  return { ...node, attributes, inputs: node.inputs.slice(0, BIASES[node.operator]) }
}

/** Runs a part of a graph once for each input, and concatenates the results. */
async function runAlone(
  context: ProbeContext,
  model: Model,
  part: {
    readonly nodes: readonly GraphNode[]
    readonly constants: Model['graph']['constants']
    readonly input?: string
  },
  inputs: readonly { readonly dims: readonly number[]; readonly values: Float32Array }[],
): Promise<Float32Array> {
  const { nodes, constants, input } = part
  const type = isHalf(model.graph) ? 'float16' : 'float32'
  const graph = {
    name: 'weights',
    nodes,
    constants,
    rest: [],
    inputs: input === undefined ? [] : [makeValue(input, type, ['', '', ''])],
    outputs: [{ name: 'weights', onnxType: undefined, dims: undefined, rest: [] }],
  }
  const probe = await openModel(context, { ...model, graph, rest: [] })
  try {
    const results: Float32Array[] = []
    const feeds =
      input === undefined ? [{}] : inputs.map((tensor) => ({ [input]: { type, ...tensor } }))
    for (const feed of feeds as Parameters<typeof probe.run>[0][]) {
      const [result] = await probe.run(feed)
      if (result !== undefined) results.push(result.values)
    }
    const whole = new Float32Array(results.reduce((sum, { length }) => sum + length, 0))
    let at = 0
    for (const result of results) {
      whole.set(result, at)
      at += result.length
    }
    return whole
  } finally {
    await probe.close()
  }
}
