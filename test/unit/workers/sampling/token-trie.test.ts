import { expect, it } from 'vitest'

import { buildTokenTrie, type TokenTrie } from '#workers/sampling/constraint/token-trie.ts'
import type { TokenPieces } from '#workers/text/detokenizer.ts'

function piecesOf(texts: readonly string[], special: readonly number[] = []): TokenPieces {
  return {
    size: texts.length,
    bytesOf: (tokenId) => Buffer.from(texts[tokenId] ?? ''),
    firstBytesOf: (tokenId) => Buffer.from(texts[tokenId] ?? ''),
    isSpecial: (tokenId) => special.includes(tokenId),
  }
}

/** The tokens by the text that leads to them. */
function tokensByText(trie: TokenTrie): Record<string, number[]> {
  const path: number[] = []
  const found: Record<string, number[]> = {}
  for (let node = 0; node < trie.nodes; node += 1) {
    const depth = trie.depth[node] ?? 0
    path.length = depth
    path.push(trie.byte[node] ?? 0)
    const first = trie.firstToken[node] ?? 0
    const tokens = trie.tokenIds.slice(first, first + (trie.tokenCount[node] ?? 0))
    if (tokens.length > 0) found[Buffer.from(path).toString()] = [...tokens]
  }
  return found
}

it('finds every token by its bytes, also those that share them', () => {
  const trie = buildTokenTrie(piecesOf(['b', 'ab', 'a', 'ab', 'abc', 'é']))
  const byText = tokensByText(trie)
  expect(byText).toEqual({ a: [2], ab: [1, 3], abc: [4], b: [0], é: [5] })
  expect(trie.depthMax).toBe(3)
})

it('contains no special tokens and no tokens without bytes', () => {
  const trie = buildTokenTrie(piecesOf(['<end>', '', 'a', '<end>'], [0]))
  expect(tokensByText(trie)).toEqual({ a: [2], '<end>': [3] })
})

it('skips a subtree by the end of its node', () => {
  const trie = buildTokenTrie(piecesOf(['ab', 'ac', 'b']))
  // In depth-first order: a, ab, ac, b.
  expect([...trie.end.slice(0, trie.nodes)]).toEqual([3, 2, 3, 4])
})
