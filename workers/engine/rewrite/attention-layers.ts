import { isCacheInput, presentOf } from '#workers/engine/past-inputs.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import { commutative, match, type Pattern } from '#workers/graph/match.ts'
import { type GraphNode, ints, type Model, makeNode } from '#workers/graph/model.ts'

import { findCachingAttention } from './caching-operators.ts'

/** An attention over a cache that grows, found in a graph: names of its tensors. */
export interface AttentionLayer {
  readonly pastKey: string
  readonly pastValue: string
  readonly presentKey: string
  readonly presentValue: string
  /** [batch, heads, length, size], after the rotation where there is one. */
  readonly query: string
  readonly key: string
  readonly value: string
  /** [batch, heads, length, size]. */
  readonly output: string
  /** Rotary embedding of query and key, where it is recognized. */
  readonly rotary: Rotary | undefined
}

/** Query and key before their rotation, and the tensors that rotate them. */
export interface Rotary {
  readonly query: string
  readonly key: string
  readonly cos: string
  readonly sin: string
  /** Whether both tensors have a number for each pair of elements, not for each element. */
  readonly isHalved: boolean
}

/** Finds every attention of a decoder; undefined when one of them is not recognized. */
export function findAttentionLayers(view: GraphView): AttentionLayer[] | undefined {
  const layers: AttentionLayer[] = []
  for (const { name } of view.graph.inputs) {
    if (!isCacheInput(name) || !name.endsWith('.key')) continue
    const layer = findLayer(view, name)
    if (layer === undefined) return undefined
    layers.push(layer)
  }
  const numPasts = view.graph.inputs.filter(({ name }) => isCacheInput(name))
  return layers.length > 0 && layers.length * 2 === numPasts.length ? layers : undefined
}

function findLayer(view: GraphView, pastKey: string): AttentionLayer | undefined {
  const pastValue = pastKey.replace(/key$/, 'value')
  const past = { key: pastKey, value: pastValue }
  const present = { key: presentOf(pastKey), value: presentOf(pastValue) }
  const caching = findCachingAttention(view, past, present)
  if (caching !== undefined) {
    const found = {
      pastKey,
      pastValue,
      presentKey: present.key,
      presentValue: present.value,
      ...caching,
    }
    return { ...found, rotary: findRotary(view, found) }
  }
  const keys = findAppend(view, pastKey)
  const values = findAppend(view, pastValue)
  if (keys === undefined || values === undefined) return undefined
  const attended = findAttended(view, keys.appended, values.appended)
  if (attended === undefined) return undefined
  const found = {
    pastKey,
    pastValue,
    presentKey: keys.present,
    presentValue: values.present,
    query: unscaled(view, attended.query),
    key: keys.added,
    value: values.added,
    output: unguarded(view, attended.output),
  }
  return { ...found, rotary: findRotary(view, found) }
}

/** The query for keys and values, and the output: by two products, or by one operator. */
function findAttended(
  view: GraphView,
  keys: string,
  values: string,
): { readonly query: string; readonly output: string } | undefined {
  const [scores, weighted] = [findProduct(view, keys), findProduct(view, values)]
  if (scores === undefined || weighted === undefined) return undefined
  const [output] = weighted.node.outputs as [string]
  if (scores.node.operator === 'Attention') {
    const [query = '', key, value] = scores.node.inputs
    const isOne = scores.node === weighted.node && scores.name === key && weighted.name === value
    return isOne ? { query, output } : undefined
  }
  const query = scores.node.inputs.find((input) => input !== scores.name)
  const after = findProduct(view, scores.node.outputs[0] as string)
  return query !== undefined && after?.node === weighted.node ? { query, output } : undefined
}

/** Where new positions are appended to a cache. */
function findAppend(
  view: GraphView,
  past: string,
): { present: string; appended: string; added: string } | undefined {
  const present = presentOf(past)
  const appended = view.source(present)
  const node = view.producer(appended)
  const axis = node?.attributes.axis
  const isAlongLength = axis?.kind === 'int' && (axis.value === 2n || axis.value === -2n)
  if (node?.operator !== 'Concat' || !isAlongLength || node.inputs.length !== 2) return undefined
  const [first, added] = node.inputs as [string, string]
  return view.source(first) === past ? { present, appended, added } : undefined
}

/** The only product or attention that reads a tensor, and the name under which it does. */
function findProduct(
  view: GraphView,
  tensor: string,
): { node: GraphNode; name: string } | undefined {
  const products = new Map<GraphNode, string>()
  const seen = new Set<string>([tensor])
  const pending = [tensor]
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    for (const node of view.consumers(name)) {
      if (node.operator === 'Shape') continue
      if (node.operator === 'MatMul' || node.operator === 'Attention') {
        products.set(node, name)
        continue
      }
      const next = node.outputs.filter((output) => !seen.has(output))
      for (const output of next) seen.add(output)
      pending.push(...next)
    }
  }
  const [[node, name] = []] = products
  if (products.size !== 1 || node === undefined || name === undefined) return undefined
  return { node, name }
}

const slice = (of: Pattern): Pattern => ({
  oneOf: [
    { operator: 'Slice', inputs: [of] },
    { operator: 'Split', inputs: [of] },
  ],
})

/** x · cos + rotate(x) · sin, where rotate moves the negated second half before the first. */
const rotated = (of: Pattern): Pattern =>
  commutative(
    'Add',
    commutative('Mul', of, 'cos'),
    commutative(
      'Mul',
      { operator: 'Concat', inputs: [{ operator: 'Neg', inputs: [slice(of)] }, slice(of)] },
      'sin',
    ),
  )

/** The whole head is rotated, or its first part; some models rotate in full precision. */
const ROTATIONS: readonly Pattern[] = [
  rotated('x'),
  { operator: 'Concat', inputs: [rotated(slice('x')), slice('x')] },
]
const ROTARY: Pattern = {
  oneOf: [...ROTATIONS, { operator: 'Cast', inputs: [{ oneOf: ROTATIONS }] }],
}

/** The operator of the standard, on rotations of the tokens instead of tables by position. */
const ROTARY_OPERATOR: Pattern = {
  operator: 'RotaryEmbedding',
  inputs: ['x', 'cos', 'sin'],
  where: ({ domain, inputs }) => domain === '' && !inputs[3],
}

/** Operators that end the computation of a scale. */
const OF_SCALES = ['Constant', 'Sqrt', 'Div', 'Pow', 'Reciprocal', 'Cast']

/** A query before its scaling, whose factor may depend on its own size. */
function unscaled(view: GraphView, tensor: string): string {
  const node = view.producer(view.source(tensor))
  const [query, scale] = node?.inputs ?? []
  if (node === undefined || query === undefined || scale === undefined) return tensor
  if (node.operator !== 'Mul' && node.operator !== 'Div') return tensor
  const operator = view.producer(view.source(scale))?.operator ?? 'Constant'
  return OF_SCALES.includes(operator) ? query : tensor
}

/**
 * Finds the output after rows of tokens that attend to none (padding) are replaced by zeros, even
 * if it was first transposed to [batch, length, heads, size] and `withTransposedGuards` reverts it.
 */
function unguarded(view: GraphView, output: string): string {
  let isTransposed = false
  for (let name = output; ; isTransposed = true) {
    const [node, ...others] = view.consumers(name)
    if (node === undefined || others.length > 0) return output
    if (node.operator === 'Where' && node.inputs[0] !== name) {
      const [result = output] = node.outputs
      const restored = result.endsWith('/guarded')
        ? view.consumers(result)[0]?.outputs[0]
        : undefined
      return isTransposed ? (restored ?? output) : result
    }
    if (!LAYOUT_OPERATORS.includes(node.operator) || node.outputs[0] === undefined) return output
    name = node.outputs[0]
  }
}

const LAYOUT_OPERATORS = ['Transpose', 'Reshape']
const SWAPPED_AXES = { attributes: { perm: ints(0, 2, 1, 3) } }

/**
 * Adds a transposition to [batch, heads, length, size] and back where a graph transposes the output
 * of an attention before it replaces padding by zeros. This changes no number. Returns the same
 * model if it has no such output.
 */
export function withTransposedGuards(model: Model): Model {
  const view = new GraphView(model.graph)
  const nodes = model.graph.nodes.flatMap((node) => {
    const [name = ''] = node.outputs
    if (!isTransposedGuard(view, node)) return [node]
    return [
      { ...node, outputs: [`${name}/guarded`] },
      makeNode('Transpose', [`${name}/guarded`], `${name}/heads`, SWAPPED_AXES),
      makeNode('Transpose', [`${name}/heads`], name, SWAPPED_AXES),
    ]
  })
  return nodes.length === model.graph.nodes.length
    ? model
    : { ...model, graph: { ...model.graph, nodes } }
}

function isTransposedGuard(view: GraphView, { operator, inputs }: GraphNode): boolean {
  const [, zero = '', guarded = ''] = inputs
  if (operator !== 'Where' || view.scalar(zero) !== 0) return false
  let node = view.producer(guarded)
  let isTransposed = false
  for (let passed = 0; node && passed < view.graph.nodes.length; passed += 1) {
    if (!LAYOUT_OPERATORS.includes(node.operator)) break
    isTransposed ||= node.operator === 'Transpose'
    node = view.producer(node.inputs[0] ?? '')
  }
  return isTransposed && (node?.operator === 'MatMul' || node?.operator === 'Attention')
}

function findRotary(
  view: GraphView,
  { query, key }: { readonly query: string; readonly key: string },
): Rotary | undefined {
  const ofOperator = match(view, key, ROTARY_OPERATOR)?.tensors
  const pattern = ofOperator === undefined ? ROTARY : ROTARY_OPERATOR
  const ofKey = match(view, key, pattern)?.tensors
  const ofQuery = match(view, query, pattern)?.tensors
  const get = (name: string): string | undefined => ofKey?.get(name)
  const [x, cos, sin] = [get('x'), get('cos'), get('sin')]
  const q = ofQuery?.get('x')
  if (x === undefined || cos === undefined || sin === undefined || q === undefined) return undefined
  return { query: q, key: x, cos, sin, isHalved: ofOperator !== undefined }
}
