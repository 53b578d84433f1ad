import { renameTensors } from '#workers/graph/extract.ts'
import { GraphView } from '#workers/graph/graph-view.ts'
import type { Graph, GraphNode, GraphValue, Model } from '#workers/graph/model.ts'
import { findElementType } from '#workers/tensor/element-type.ts'

import { isCacheInput, isStateInput } from './past-inputs.ts'
import { cachePlacesOf } from './rewrite/caching-operators.ts'

const VALUE = /value|(^|[^a-z])v([^a-z]|$)/i
/** Three-axis outputs of encoders. */
const NO_LOGITS = /hidden|embed/i
/** Caches and states under usual names. */
const IS_PRESENT = /^present[._]/

interface Cache {
  readonly past: string
  readonly present: string
  readonly isValue: boolean
}

/**
 * Renames the caches and logits of a decoder from other exporters' names, such as `key_cache_0` and
 * `cat_7` of PyTorch, to the usual ones. A cache is recognized by its use: an input of four axes to
 * which a node appends, and the output of that node. Unchanged if the names are usual.
 */
export function withUsualNames(model: Model): Model {
  const { graph } = model
  const names = cacheNames(graph)
  if (names === undefined) return model
  const others = graph.outputs.filter(({ name }) => !names.has(name) && !IS_PRESENT.test(name))
  const logits = others.filter(({ name, dims }) => dims?.length === 3 && !NO_LOGITS.test(name))
  const [found] = logits
  if (found !== undefined && logits.length === 1) names.set(found.name, 'logits')
  if (names.size === 0 || (names.size === 1 && names.has('logits'))) return model
  const renamed = renameTensors(graph, names)
  if (renamed === undefined) return model
  const { inputs, outputs } = renamed
  const whole = { ...renamed, inputs: inputs.map(withSizes), outputs: outputs.map(withSizes) }
  return { ...model, graph: whole }
}

/**
 * Maps the names of a graph's caches to the usual ones; empty if it already uses them. Undefined if
 * the numbers of keys and values differ.
 */
function cacheNames(graph: Graph): Map<string, string> | undefined {
  const names = new Map<string, string>()
  if (graph.inputs.some(({ name }) => isCacheInput(name) || isStateInput(name))) return names
  const view = new GraphView(graph)
  const caches = graph.inputs.flatMap((input) => findCache(view, input) ?? [])
  const [keys, values] = [caches.filter(({ isValue }) => !isValue), caches.filter(isOfValues)]
  if (keys.length !== values.length) return undefined
  for (const [kind, found] of [['key', keys] as const, ['value', values] as const]) {
    for (const [layer, { past, present }] of found.entries()) {
      names.set(past, `past_key_values.${layer}.${kind}`)
      names.set(present, `present.${layer}.${kind}`)
    }
  }
  for (const [number, { input, output, kind }] of statesOf(graph).entries()) {
    names.set(input, `past_${kind}.${number}`)
    names.set(output, `present_${kind}.${number}`)
  }
  return names
}

/** A state of a layer in transformers 5: `input.cache.layers.0.conv_states.0` of one size. */
const STATE = /^input\.(.+\.([a-z]+)_states\.\d+)$/

function statesOf({ inputs, outputs }: Graph) {
  const made = new Set(outputs.map(({ name }) => name))
  return inputs.flatMap(({ name: input, dims = [] }) => {
    const [, path, kind] = STATE.exec(input) ?? []
    const output = `output.${path}`
    const hasOneSize = dims.slice(1).every((dim) => /^\d+$/.test(String(dim)))
    return kind !== undefined && hasOneSize && made.has(output) ? [{ input, output, kind }] : []
  })
}

/**
 * `past_key_values_value_cache_0`, `v_cache_0`; a name with both words does not distinguish keys
 * and values.
 */
function isNamedValue(name: string): boolean {
  return VALUE.test(name.replace(/key_values?/i, ''))
}

function isOfValues({ isValue }: Cache): boolean {
  return isValue
}

function findCache(view: GraphView, { name, dims, onnxType = 0 }: GraphValue): Cache | undefined {
  const type = findElementType(onnxType)
  if (dims?.length !== 4 || (type !== 'float32' && type !== 'float16')) return undefined
  for (const node of view.consumers(name)) {
    const written = presentOfNode(node, name)
    if (written === undefined) continue
    const output = view.graph.outputs.find((other) => view.source(other.name) === written.tensor)
    if (output === undefined) continue
    return { past: name, present: output.name, isValue: written.isValue ?? isNamedValue(name) }
  }
  return undefined
}

/** The tensor in which a node appends to a cache. */
function presentOfNode(
  node: GraphNode,
  past: string,
): { readonly tensor: string | undefined; readonly isValue?: boolean } | undefined {
  const { operator, inputs, outputs, attributes } = node
  const { axis } = attributes
  if (operator === 'Concat') {
    const isAlongLength = axis?.kind === 'int' && (axis.value === 2n || axis.value === -2n)
    return isAlongLength && inputs[0] === past ? { tensor: outputs[0] } : undefined
  }
  const places = cachePlacesOf(node)
  if (places === undefined) return undefined
  const at = places.pasts.findIndex((place) => inputs[place] === past)
  return at < 0 ? undefined : { tensor: outputs[places.presents[at] ?? 0], isValue: at === 1 }
}

/** Sizes that an exporter wrote as symbols, as transformers does. */
function withSizes(value: GraphValue): GraphValue {
  const { dims } = value
  if (dims === undefined) return value
  return {
    ...value,
    dims: dims.map((dim) => (typeof dim === 'string' && /^\d+$/.test(dim) ? Number(dim) : dim)),
  }
}
