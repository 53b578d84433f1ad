import type { GraphView } from './graph-view.ts'
import type { GraphNode } from './model.ts'

/**
 * The required source of a tensor: any tensor, captured under a name (the same name twice is the
 * same tensor); an operator over patterns; or one of several patterns.
 */
export type Pattern =
  | string
  | {
      readonly operator: string
      /** Patterns of the first inputs; further inputs are ignored. */
      readonly inputs: readonly Pattern[]
      /** The inputs may be in any order. */
      readonly isCommutative?: boolean
      /** Captures the node under this name. */
      readonly as?: string
      readonly where?: (node: GraphNode, view: GraphView) => boolean
    }
  | { readonly oneOf: readonly Pattern[] }

/** Tensors and nodes by their names in a pattern. */
export interface Match {
  readonly tensors: ReadonlyMap<string, string>
  readonly nodes: ReadonlyMap<string, GraphNode>
}

const NOTHING: Match = { tensors: new Map(), nodes: new Map() }

/** Matches a tensor and its sources; undefined when they do not match. */
export function match(view: GraphView, tensor: string, pattern: Pattern): Match | undefined {
  for (const found of matches(view, tensor, pattern, NOTHING)) return found
  return undefined
}

/** An operator whose inputs may be in any order. */
export function commutative(operator: string, a: Pattern, b: Pattern): Pattern {
  return { operator, inputs: [a, b], isCommutative: true }
}

/** Every way to match: a choice that fails later is replaced by the next. */
function* matches(
  view: GraphView,
  tensor: string,
  pattern: Pattern,
  found: Match,
): Generator<Match> {
  const source = view.source(tensor)
  if (typeof pattern === 'string') {
    const known = found.tensors.get(pattern)
    if (known === source) yield found
    if (known !== undefined) return
    yield { ...found, tensors: new Map([...found.tensors, [pattern, source]]) }
    return
  }
  if ('oneOf' in pattern) {
    for (const candidate of pattern.oneOf) yield* matches(view, tensor, candidate, found)
    return
  }
  const node = view.producer(source)
  if (node?.operator !== pattern.operator || node.inputs.length < pattern.inputs.length) return
  if (pattern.where?.(node, view) === false) return
  const { as } = pattern
  const start = as ? { ...found, nodes: new Map([...found.nodes, [as, node]]) } : found
  yield* allMatches(view, node.inputs, pattern.inputs, start)
  if (pattern.isCommutative) {
    yield* allMatches(view, node.inputs.toReversed(), pattern.inputs, start)
  }
}

function* allMatches(
  view: GraphView,
  tensors: readonly string[],
  [pattern, ...rest]: readonly Pattern[],
  found: Match,
): Generator<Match> {
  if (pattern === undefined) {
    yield found
    return
  }
  for (const first of matches(view, tensors[0] as string, pattern, found)) {
    yield* allMatches(view, tensors.slice(1), rest, first)
  }
}
