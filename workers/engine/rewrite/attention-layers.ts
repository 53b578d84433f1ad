import type { GraphView } from '#workers/graph/graph-view.ts'
import { commutative, match, type Pattern } from '#workers/graph/match.ts'
import type { GraphNode } from '#workers/graph/model.ts'

import { isCacheInput, presentOf } from '../past-inputs.ts'

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
}

/** Finds every attention of a decoder; undefined when there is one that is not recognized. */
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
  const keys = findAppend(view, pastKey)
  const values = findAppend(view, pastValue)
  if (keys === undefined || values === undefined) return undefined
  const scores = findProduct(view, keys.appended)
  const weighted = findProduct(view, values.appended)
  if (scores === undefined || weighted === undefined) return undefined
  if (findProduct(view, scores.node.outputs[0] as string)?.node !== weighted.node) return undefined
  const found = {
    pastKey,
    pastValue,
    presentKey: keys.present,
    presentValue: values.present,
    query: unscaled(view, scores.other),
    key: keys.added,
    value: values.added,
    output: weighted.node.outputs[0] as string,
  }
  return { ...found, rotary: findRotary(view, found) }
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

/** The only product of matrices that a tensor goes into, and its other factor. */
function findProduct(
  view: GraphView,
  tensor: string,
): { node: GraphNode; other: string } | undefined {
  const products = new Map<GraphNode, string>()
  const seen = new Set<string>([tensor])
  const pending = [tensor]
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    for (const node of view.consumers(name)) {
      if (node.operator === 'Shape') continue
      if (node.operator === 'MatMul') {
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
  const other = node.inputs.find((input) => input !== name)
  return other === undefined ? undefined : { node, other }
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

/** The whole of each head is rotated, or its first part; some models rotate in full precision. */
const ROTATIONS: readonly Pattern[] = [
  rotated('x'),
  { operator: 'Concat', inputs: [rotated(slice('x')), slice('x')] },
]
const ROTARY: Pattern = {
  oneOf: [...ROTATIONS, { operator: 'Cast', inputs: [{ oneOf: ROTATIONS }] }],
}

/** Operators that end the computation of a scale. */
const OF_SCALES = ['Constant', 'Sqrt', 'Div', 'Pow', 'Reciprocal', 'Cast']

/** A query before it is multiplied by a scale, which may follow from its own size. */
function unscaled(view: GraphView, tensor: string): string {
  const node = view.producer(view.source(tensor))
  const [query, scale] = node?.inputs ?? []
  if (node === undefined || query === undefined || scale === undefined) return tensor
  if (node.operator !== 'Mul' && node.operator !== 'Div') return tensor
  const operator = view.producer(view.source(scale))?.operator ?? 'Constant'
  return OF_SCALES.includes(operator) ? query : tensor
}

function findRotary(
  view: GraphView,
  { query, key }: { readonly query: string; readonly key: string },
): Rotary | undefined {
  const ofKey = match(view, key, ROTARY)?.tensors
  const ofQuery = match(view, query, ROTARY)?.tensors
  const get = (name: string): string | undefined => ofKey?.get(name)
  const [x, cos, sin] = [get('x'), get('cos'), get('sin')]
  const q = ofQuery?.get('x')
  if (x === undefined || cos === undefined || sin === undefined || q === undefined) return undefined
  return { query: q, key: x, cos, sin }
}
