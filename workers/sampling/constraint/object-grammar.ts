import type { CodePointRanges } from './code-points.ts'
import type { Grammar } from './grammar.ts'
import type { JsonGrammar } from './json-grammar.ts'

/** A property as `"name": value`, and whether it is optional. */
interface ListedProperty {
  readonly pair: Grammar
  readonly isRequired: boolean
}

/**
 * An object with its properties in order. Each step only knows whether a property precedes it, so
 * that a comma is required: two small grammars per property, regardless of how many are optional.
 */
export function objectWith(
  json: JsonGrammar,
  properties: readonly ListedProperty[],
  other: Grammar | undefined,
): Grammar {
  const { builder } = json
  const nothing = builder.literal('')
  const others =
    other === undefined ? nothing : builder.repeat(builder.sequence(json.comma, other), 0)
  let afterComma = others
  let atStart = other === undefined ? nothing : builder.optional(builder.sequence(other, others))
  for (const { pair, isRequired } of properties.toReversed()) {
    const withComma = builder.sequence(json.comma, pair, afterComma)
    const first = builder.sequence(pair, afterComma)
    atStart = isRequired ? first : builder.choice(first, atStart)
    afterComma = isRequired ? withComma : builder.choice(withComma, afterComma)
  }
  return builder.sequence(builder.literal('{'), atStart, builder.literal('}'))
}

interface NameTree {
  readonly children: Map<number, NameTree>
  isName: boolean
}

/**
 * A quoted key other than the names, because a second spelling of a name would replace its value.
 */
export function keyOtherThan(json: JsonGrammar, names: readonly string[]): Grammar {
  const root: NameTree = { children: new Map(), isName: false }
  for (const name of names) {
    json.builder.budget.charge(name.length)
    let node = root
    for (const character of name) {
      const point = character.codePointAt(0) as number
      const child = node.children.get(point) ?? { children: new Map(), isName: false }
      node.children.set(point, child)
      node = child
    }
    node.isName = true
  }
  const { builder } = json
  const anyEnd = builder.sequence(builder.repeat(json.plainCharacter([]), 0), builder.literal('"'))
  const characterBut = (taken: CodePointRanges): Grammar =>
    builder.named(`character but ${taken.join(' ')}`, () => json.plainCharacter(taken))
  const made = new Map<NameTree, Grammar>()
  const continueFrom = (node: NameTree): Grammar => {
    const taken = [...node.children.keys()].map((point) => [point, point] as const)
    const isPlain = (point: number) => point >= 0x20 && point !== 0x22 && point !== 0x5c
    return builder.choiceOf([
      builder.sequence(characterBut(taken), anyEnd),
      ...(node.isName ? [] : [builder.literal('"')]),
      ...[...node.children]
        .filter(([point]) => isPlain(point))
        .map(([point, child]) =>
          builder.sequence(
            builder.literal(String.fromCodePoint(point)),
            made.get(child) as Grammar,
          ),
        ),
    ])
  }
  // Children come before their parents, without recursion: a name may have thousands of characters.
  for (const node of parentsFirst(root).toReversed()) made.set(node, continueFrom(node))
  return builder.sequence(builder.literal('"'), made.get(root) as Grammar)
}

function parentsFirst(root: NameTree): readonly NameTree[] {
  const nodes = [root]
  // The loop also reads what it appends.
  for (const node of nodes) for (const child of node.children.values()) nodes.push(child)
  return nodes
}
