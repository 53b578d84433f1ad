import { defined } from '#shared/json.ts'
import { hasCacheInputs, isStateInput } from '#workers/engine/past-inputs.ts'
import { renameTensors } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import {
  type Graph,
  type GraphNode,
  int,
  ints,
  type Model,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'

import { openModel, type ProbeContext, type ProbeResult } from './graph-probe.ts'

/** Keys and values of an attention: [batch, heads, length, size]. */
interface AttendedPair {
  readonly key: string
  readonly value: string
}

/** The logits of the original graph for a short text, to check a rewritten graph. */
export interface ReferenceRun {
  readonly tokenIds: readonly number[]
  readonly logits: Float32Array
}

/** A graph with added caches. */
interface CachedModel {
  /** Correct while the caches are empty; otherwise masks and positions are still wrong. */
  readonly model: Model
  readonly reference: ReferenceRun
}

/** Length in tokens of the text that checks a rewritten graph. */
const TEXT_LENGTH = 12

/**
 * Adds a cache to each attention of a decoder that computes only whole texts, so that it can be
 * rewritten. Undefined for other graphs.
 */
export async function addCaches(
  context: ProbeContext,
  model: Model,
): Promise<CachedModel | undefined> {
  const { graph } = model
  if (hasCacheInputs(model) || graph.inputs.some(({ name }) => isStateInput(name))) return undefined
  const names = new Set(graph.inputs.map(({ name }) => name))
  const vocabSize = graph.outputs.find(({ name }) => name === 'logits')?.dims?.at(2)
  if (!names.has('input_ids') || typeof vocabSize !== 'number') return undefined
  const transposed = withTransposedHeads(withLogitsAlone(graph))
  const pairs = findPairs(new GraphView(transposed))
  if (pairs.length === 0) return undefined
  const tokenIds = Array.from({ length: TEXT_LENGTH }, (_, at) => {
    return Math.floor(((at + 1) * vocabSize) / (TEXT_LENGTH + 2))
  })
  const [logits, ...tensors] = await runText(
    context,
    { ...model, graph: transposed },
    { pairs, tokenIds },
  )
  const types = pairs.map((_, layer) => sizesOf(tensors.slice(2 * layer, 2 * layer + 2)))
  if (logits === undefined || types.includes(undefined)) return undefined
  const cached = withCaches(withTokenShapes(transposed), pairs, types as HeadSizes[])
  return { model: { ...model, graph: cached }, reference: { tokenIds, logits: logits.values } }
}

/** Returns the logits, then the keys and values of each attention. */
async function runText(
  context: ProbeContext,
  model: Model,
  { pairs, tokenIds }: { readonly pairs: readonly AttendedPair[]; tokenIds: readonly number[] },
): Promise<ProbeResult[]> {
  const wanted = ['logits', ...pairs.flatMap(({ key, value }) => [key, value])]
  const outputs = wanted.map((name) => ({ name, onnxType: undefined, dims: undefined, rest: [] }))
  const probe = await openModel(context, { ...model, graph: { ...model.graph, outputs } })
  try {
    const dims = [1, tokenIds.length]
    return await probe.run({
      input_ids: { type: 'int64', dims, values: tokenIds },
      attention_mask: { type: 'int64', dims, values: 1 },
      position_ids: { type: 'int64', dims, values: tokenIds.map((_, at) => at) },
    })
  } finally {
    await probe.close()
  }
}

interface HeadSizes {
  readonly type: 'float32' | 'float16'
  readonly numHeads: number
  readonly headDim: number
}

function sizesOf(pair: readonly ProbeResult[]): HeadSizes | undefined {
  const [{ type, dims = [] } = {}, value] = pair
  const [rows, numHeads = 0, length, headDim = 0] = dims
  const isPair = dims.length === 4 && rows === 1 && length === TEXT_LENGTH
  const isAlike = value?.type === type && value?.dims.join() === dims.join()
  if (!isPair || !isAlike || (type !== 'float32' && type !== 'float16')) return undefined
  return { type, numHeads, headDim }
}

/**
 * Removes the cache outputs that some exporters write for whole texts and never read, and renames
 * their tensors, so that the names can be used again.
 */
function withLogitsAlone(graph: Graph): Graph {
  const outputs = graph.outputs.filter(({ name }) => name === 'logits')
  const unreadOutputs = graph.outputs.filter((output) => !outputs.includes(output))
  const names = new Map(unreadOutputs.map(({ name }) => [name, `whole/${name}`]))
  return { ...(renameTensors(graph, names) ?? graph), outputs }
}

/** Transposes keys in two steps; the first produces [batch, heads, length, size]. */
function withTransposedHeads(graph: Graph): Graph {
  const nodes = graph.nodes.flatMap((node) => {
    const [from = '', to = ''] = [node.inputs[0], node.outputs[0]]
    if (permOf(node) !== '0,2,3,1') return [node]
    return [
      makeNode('Transpose', [from], `${to}/heads`, { attributes: { perm: ints(0, 2, 1, 3) } }),
      makeNode('Transpose', [`${to}/heads`], to, { attributes: { perm: ints(0, 1, 3, 2) } }),
    ]
  })
  return { ...graph, nodes }
}

function permOf({ operator, attributes: { perm } }: GraphNode): string | undefined {
  return operator === 'Transpose' && perm?.kind === 'ints' ? perm.value.join() : undefined
}

function findPairs(view: GraphView): AttendedPair[] {
  return view.graph.nodes.flatMap((node) => {
    const { operator, domain, inputs } = node
    if (operator === 'Attention' && domain === '') {
      return [{ key: unrepeated(view, inputs[1]), value: unrepeated(view, inputs[2]) }]
    }
    if (operator !== 'Softmax') return []
    const scores = productBefore(view, inputs[0])
    const weighted = productAfter(view, node.outputs[0])
    if (scores === undefined || weighted === undefined) return []
    return [
      { key: unrepeated(view, scores.inputs[1]), value: unrepeated(view, weighted.inputs[1]) },
    ]
  })
}

/** Operators between the scores and their softmax: scales, masks, softcaps, precision. */
const SCORE_OPERATORS = [
  'Add',
  'Sub',
  'Mul',
  'Div',
  'Where',
  'Cast',
  'Tanh',
  'Max',
  'Clip',
  'Identity',
]
/** Operators between the softmax and the product with the values. */
const WEIGHT_OPERATORS = ['Where', 'Cast', 'Dropout', 'Identity']
/** Operators that repeat, transpose and scale the heads of keys and values. */
const HEAD_OPERATORS = ['Reshape', 'Expand', 'Unsqueeze', 'Tile', 'Cast', 'Identity', 'Transpose']

function productBefore(
  view: GraphView,
  name = '',
  seen: Set<string> = new Set(),
): GraphNode | undefined {
  const node = seen.has(name) ? undefined : view.producer(name)
  seen.add(name)
  if (node === undefined || node.operator === 'MatMul') return node
  if (!SCORE_OPERATORS.includes(node.operator)) return undefined
  for (const input of node.inputs) {
    const found = productBefore(view, input, seen)
    if (found !== undefined) return found
  }
  return undefined
}

function productAfter(
  view: GraphView,
  name = '',
  seen: Set<string> = new Set(),
): GraphNode | undefined {
  if (seen.has(name)) return undefined
  seen.add(name)
  for (const node of view.consumers(name)) {
    if (node.operator === 'MatMul' && view.source(node.inputs[0] ?? '') === view.source(name)) {
      return node
    }
    const found = WEIGHT_OPERATORS.includes(node.operator)
      ? productAfter(view, node.outputs[0], seen)
      : undefined
    if (found !== undefined) return found
  }
  return undefined
}

/** Finds the keys or values before their heads are repeated for the query heads. */
function unrepeated(view: GraphView, tensor = ''): string {
  let name = tensor
  for (let passed = 0; passed < view.graph.nodes.length; passed += 1) {
    const node = view.producer(name)
    if (node === undefined || permOf(node) === '0,2,1,3') break
    const isScaled = node.operator === 'Mul' || node.operator === 'Div'
    const isPassed = HEAD_OPERATORS.includes(node.operator)
    if (!isPassed && !(isScaled && isScalar(view, node.inputs[1]))) break
    name = node.inputs[0] as string
  }
  return name
}

function isScalar(view: GraphView, name = ''): boolean {
  return view.scalar(name) !== undefined || view.producer(name)?.operator === 'Sqrt'
}

/**
 * Reads the numbers of rows and tokens from `input_ids` only: with a cache the mask is longer, and
 * reading them from the embeddings would compute these for their shape alone.
 */
function withTokenShapes(graph: Graph): Graph {
  const view = new GraphView(graph)
  const nodes = graph.nodes.map((node) => {
    const tokens = node.operator === 'Shape' ? tokensOf(view, node) : undefined
    return tokens === undefined ? node : { ...node, inputs: [tokens] }
  })
  return { ...graph, nodes }
}

function tokensOf(view: GraphView, { inputs, outputs, attributes }: GraphNode): string | undefined {
  const [name = ''] = inputs
  const source = view.producer(name)
  const isMask = (source?.operator === 'Cast' ? source.inputs[0] : name) === 'attention_mask'
  if (isMask) return 'input_ids'
  if (source?.operator !== 'Gather' || source.inputs[1] !== 'input_ids') return undefined
  const { start, end } = attributes
  const isCut = end?.kind === 'int' && end.value > 0n && end.value <= 2n
  if (isCut && (start === undefined || (start.kind === 'int' && start.value >= 0n))) {
    return 'input_ids'
  }
  const reads = view.consumers(outputs[0] as string).every(({ operator, inputs: [, at = ''] }) => {
    return operator === 'Gather' && view.numbers(at)?.every((axis) => axis === 0 || axis === 1)
  })
  return reads && start === undefined && end === undefined ? 'input_ids' : undefined
}

function withCaches(
  graph: Graph,
  pairs: readonly AttendedPair[],
  sizes: readonly HeadSizes[],
): Graph {
  const appended = new Map<string, string>()
  const [inputs, outputs] = [[...graph.inputs], [...graph.outputs]]
  const nodes: GraphNode[] = []
  for (const [layer, pair] of pairs.entries()) {
    const { type, numHeads, headDim } = defined(sizes[layer])
    for (const kind of ['key', 'value'] as const) {
      const [past, present] = [`past_key_values.${layer}.${kind}`, `present.${layer}.${kind}`]
      inputs.push(makeValue(past, type, ['batch', numHeads, 'past_length', headDim]))
      outputs.push(makeValue(present, type, ['batch', numHeads, 'total_length', headDim]))
      nodes.push(makeNode('Concat', [past, pair[kind]], present, { attributes: { axis: int(2) } }))
      appended.set(pair[kind], present)
    }
  }
  const attending = graph.nodes.map((node) => ({
    ...node,
    inputs: node.inputs.map((name) => appended.get(name) ?? name),
  }))
  return { ...graph, inputs, outputs, nodes: [...attending, ...nodes] }
}
