import type { Grammar, GrammarBuilder } from './grammar.ts'

const STEPS_PER_CHARACTER = 5 // some 1 µs for each node

type Ranges = readonly (readonly [number, number])[]

/** A prefix of patterns that the text ends with. */
interface Node {
  readonly children: Map<number, Node>
  /** The pattern that ends here; the shortest is found first. */
  pattern?: string
  /** By byte: the next node; the root for unlisted bytes. */
  moves: ReadonlyMap<number, Node>
  grammar?: Grammar
}

/**
 * Free text until the first of some patterns, and the grammar that follows it; a pattern without a
 * grammar is forbidden. With `mayEnd` the text may also end without one.
 *
 * The automaton of Aho and Corasick, written as right-recursive rules: a node for each prefix of a
 * pattern; a byte leads to the longest prefix that the text then ends with.
 */
export function textUntil(
  builder: GrammarBuilder,
  patterns: ReadonlyMap<string, Grammar | undefined>,
  { mayEnd }: { readonly mayEnd: boolean },
): Grammar {
  const root: Node = { children: new Map(), moves: new Map() }
  for (const pattern of patterns.keys()) {
    builder.budget.charge(STEPS_PER_CHARACTER * pattern.length)
    addPattern(root, pattern)
  }
  const nodes = linkNodes(root, builder)
  const target = (node: Node): Grammar | undefined =>
    node.pattern === undefined
      ? builder.reference(() => node.grammar as Grammar)
      : patterns.get(node.pattern)
  for (const node of nodes) node.grammar = ruleOf(builder, node, { root, target, mayEnd })
  return root.grammar as Grammar
}

function addPattern(root: Node, pattern: string): void {
  let node = root
  for (const byte of Buffer.from(pattern)) {
    const next = node.children.get(byte) ?? { children: new Map(), moves: new Map() }
    node.children.set(byte, next)
    node = next
  }
  node.pattern = pattern
}

/** Computes the moves of all nodes, shorter prefixes first. */
function linkNodes(root: Node, { budget }: GrammarBuilder): readonly Node[] {
  root.moves = root.children
  const open = [...root.children.values()].map((node) => ({ node, suffix: root }))
  const nodes = [root]
  // The loop also reads what it appends.
  for (const { node, suffix } of open) {
    nodes.push(node)
    budget.charge(suffix.moves.size + node.children.size)
    node.moves = new Map([...suffix.moves, ...node.children])
    if (node.pattern === undefined && suffix.pattern !== undefined) node.pattern = suffix.pattern
    for (const [byte, child] of node.children) {
      open.push({ node: child, suffix: suffix.moves.get(byte) ?? root })
    }
  }
  return nodes
}

function ruleOf(
  builder: GrammarBuilder,
  { moves }: Node,
  {
    root,
    target,
    mayEnd,
  }: {
    readonly root: Node
    readonly target: (node: Node) => Grammar | undefined
    readonly mayEnd: boolean
  },
): Grammar {
  const step = (ranges: Ranges, node: Node): Grammar[] => {
    const follows = target(node)
    return follows === undefined ? [] : [builder.sequence(builder.byte(...ranges), follows)]
  }
  const others = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) => !moves.has(byte))
  const options = [...moves].flatMap(([byte, node]) => step([[byte, byte]], node))
  const end = mayEnd ? [builder.literal('')] : []
  return builder.choiceOf([...end, ...step(rangesOf(others), root), ...options])
}

function rangesOf(bytes: readonly number[]): Ranges {
  const ranges: [number, number][] = []
  for (const byte of bytes) {
    const last = ranges.at(-1)
    if (last?.[1] === byte - 1) last[1] = byte
    else ranges.push([byte, byte])
  }
  return ranges
}
