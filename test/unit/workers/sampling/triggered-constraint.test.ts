import { describe, expect, it } from 'vitest'

import { GrammarBuilder } from '#workers/sampling/constraint/grammar.ts'
import { ConstraintFactory } from '#workers/sampling/constraint/token-constraint.ts'
import { buildTokenTrie } from '#workers/sampling/constraint/token-trie.ts'
import { TriggeredConstraint } from '#workers/sampling/constraint/triggered-constraint.ts'

const TOKENS = ['', '<', 'a', 'b', '>', 'x<a', '<z', 'b>x']
const END = 0
const pieces = {
  bytesOf: (tokenId: number) => Buffer.from(TOKENS[tokenId] as string),
  firstBytesOf: (tokenId: number) => Buffer.from(TOKENS[tokenId] as string),
  isSpecial: (tokenId: number) => tokenId === END,
  size: TOKENS.length,
}

/** The tokens that may follow some others, if everything between `<` and `>` must be `ab`. */
function allowedAfter(...texts: readonly string[]): readonly string[] {
  const grammar = new GrammarBuilder().literal('ab>')
  const endTokenIds = new Set([END])
  const factory = new ConstraintFactory({
    grammar,
    trie: buildTokenTrie(pieces),
    pieces,
    endTokenIds,
  })
  const follower = new TriggeredConstraint({
    opening: '<',
    inner: () => factory,
    pieces,
    isLenient: false,
  }).create()
  for (const text of texts) follower.accept(TOKENS.indexOf(text))
  const scores = new Float32Array(TOKENS.length)
  follower.mask(scores)
  return TOKENS.filter((_, tokenId) => scores[tokenId] === 0)
}

describe('text with parts that follow a grammar', () => {
  it('is free before the first opening', () => {
    expect(allowedAfter()).toEqual(TOKENS)
    expect(allowedAfter('b', '>', 'a')).toEqual(TOKENS)
  })

  it('follows the grammar from the opening on', () => {
    expect(allowedAfter('<')).toEqual(['a'])
    expect(allowedAfter('b', '<', 'a')).toEqual(['b'])
  })

  it('counts the characters of the opening token that follow the opening', () => {
    expect(allowedAfter('x<a')).toEqual(['b'])
  })

  it('stays free if that token continues in another way', () => {
    expect(allowedAfter('<z')).toEqual(TOKENS)
  })

  it('is free again after the end of the part, until the next opening', () => {
    expect(allowedAfter('<', 'a', 'b', '>')).toEqual(TOKENS)
    expect(allowedAfter('<', 'a', 'b', '>', 'b', '<')).toEqual(['a'])
  })
})
