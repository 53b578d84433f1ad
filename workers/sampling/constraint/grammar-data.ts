import type { GrammarSurvey } from './dead-ends.ts'
import { surveyGrammar } from './dead-ends.ts'
import type { Grammar } from './grammar.ts'

/** A grammar as plain data that can be sent to threads; nodes refer to each other by index. */
export interface GrammarData {
  readonly nodes: readonly NodeData[]
  /** Indices of nodes that no text can satisfy. */
  readonly deadEnds: readonly number[]
}

type NodeData =
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'oneOf'; readonly members: Uint8Array }
  | { readonly kind: 'sequence' | 'choice'; readonly inner: readonly number[] }
  | { readonly kind: 'repeat'; readonly inner: number; readonly min: number; readonly max: number }
  | { readonly kind: 'reference'; readonly inner: number }

/** A grammar with its analysis. */
export interface SurveyedGrammar {
  readonly grammar: Grammar
  readonly survey?: GrammarSurvey
}

/** Converts a grammar to data; parts that are built later are built now. */
export function toGrammarData(root: Grammar): GrammarData {
  const places = new Map<Grammar, number>([[root, 0]])
  const placeOf = (grammar: Grammar): number => {
    const place = places.get(grammar) ?? places.size
    if (place === places.size) places.set(grammar, place)
    return place
  }
  const nodes: NodeData[] = []
  // The loop also reads what it appends.
  for (const grammar of places.keys()) nodes.push(toNode(grammar, placeOf))
  const decoded = link(nodes)
  const { deadEnds } = surveyGrammar(decoded[0] as Grammar)
  const dead = decoded.flatMap((grammar, place) => (deadEnds.has(grammar) ? [place] : []))
  return { nodes, deadEnds: dead }
}

/** Converts data to a grammar. */
export function fromGrammarData({ nodes, deadEnds }: GrammarData): SurveyedGrammar {
  const grammars = link(nodes)
  const dead = new Set(deadEnds.map((place) => grammars[place] as Grammar))
  const survey = { deadEnds: dead, numParts: grammars.length }
  return { grammar: grammars[0] as Grammar, survey }
}

function toNode(grammar: Grammar, placeOf: (grammar: Grammar) => number): NodeData {
  switch (grammar.kind) {
    case 'bytes':
      // A copy, because a pooled buffer would be sent with its whole pool.
      return { kind: 'bytes', bytes: Uint8Array.from(grammar.bytes) }
    case 'oneOf':
      return { kind: 'oneOf', members: grammar.members }
    case 'sequence':
      return { kind: 'sequence', inner: grammar.parts.map(placeOf) }
    case 'choice':
      return { kind: 'choice', inner: grammar.options.map(placeOf) }
    case 'repeat': {
      const { min, max } = grammar
      return { kind: 'repeat', inner: placeOf(grammar.body), min, max }
    }
    case 'reference':
      return { kind: 'reference', inner: placeOf(grammar.resolve()) }
    case 'later':
      return { kind: 'reference', inner: placeOf(grammar.make()) }
  }
}

function link(nodes: readonly NodeData[]): Grammar[] {
  // Filled after all nodes exist, because they may be circular.
  const grammars = nodes.map((node, place) => empty(node, place + 1))
  for (const [place, node] of nodes.entries()) {
    const inner = 'inner' in node && typeof node.inner === 'object' ? node.inner : []
    const list = grammars[place] as { parts?: Grammar[]; options?: Grammar[]; body?: Grammar }
    const target = list.parts ?? list.options
    for (const at of inner) target?.push(grammars[at] as Grammar)
    if (node.kind === 'repeat') list.body = grammars[node.inner] as Grammar
    if (node.kind === 'reference') {
      const resolve = (): Grammar => grammars[node.inner] as Grammar
      grammars[place] = Object.assign(grammars[place] as Grammar, { resolve })
    }
  }
  return grammars
}

function empty(node: NodeData, id: number): Grammar {
  switch (node.kind) {
    case 'bytes':
      return { kind: 'bytes', id, bytes: node.bytes }
    case 'oneOf':
      return { kind: 'oneOf', id, members: node.members }
    case 'sequence':
      return { kind: 'sequence', id, parts: [] }
    case 'choice':
      return { kind: 'choice', id, options: [] }
    case 'repeat':
      return { kind: 'repeat', id, body: NOTHING, min: node.min, max: node.max }
    case 'reference':
      return { kind: 'reference', id, resolve: () => NOTHING }
  }
}

const NOTHING: Grammar = { kind: 'bytes', id: 0, bytes: new Uint8Array(0) }
