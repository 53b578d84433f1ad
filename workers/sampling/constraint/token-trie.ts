import type { TokenPieces } from '#workers/text/detokenizer.ts'

/**
 * All tokens of a vocabulary as a tree of their bytes, in depth-first order: the node after a node
 * is its first child, and `end` is the node after its subtree.
 */
export interface TokenTrie {
  readonly nodes: number
  readonly byte: Uint8Array
  readonly depth: Uint16Array
  readonly end: Int32Array
  /**
   * Position in `tokenIds` of the first token that ends at a node, and the number of such tokens.
   */
  readonly firstToken: Int32Array
  readonly tokenCount: Uint16Array
  readonly tokenIds: Int32Array
  readonly depthMax: number
}

/** Builds the tree once per model; special tokens and tokens without bytes are excluded. */
export function buildTokenTrie(pieces: TokenPieces): TokenTrie {
  const entries: { tokenId: number; bytes: Uint8Array }[] = []
  for (let tokenId = 0; tokenId < pieces.size; tokenId += 1) {
    const bytes = pieces.bytesOf(tokenId)
    if (bytes.length > 0 && !pieces.isSpecial(tokenId)) entries.push({ tokenId, bytes })
  }
  entries.sort((a, b) => Buffer.compare(a.bytes, b.bytes))
  const capacity = entries.reduce((sum, { bytes }) => sum + bytes.length, 0)
  const depthMax = entries.reduce((max, { bytes }) => Math.max(max, bytes.length), 0)
  const trie = {
    nodes: 0,
    byte: new Uint8Array(capacity),
    depth: new Uint16Array(capacity),
    end: new Int32Array(capacity),
    firstToken: new Int32Array(capacity),
    tokenCount: new Uint16Array(capacity),
    tokenIds: Int32Array.from(entries, ({ tokenId }) => tokenId),
    depthMax,
  }
  fill(trie, entries)
  return trie
}

function fill(
  trie: Omit<TokenTrie, 'nodes'> & { nodes: number },
  entries: readonly { readonly bytes: Uint8Array }[],
): void {
  const path: number[] = []
  let previous: Uint8Array = new Uint8Array(0)
  entries.forEach(({ bytes }, order) => {
    const shared = sharedPrefix(previous, bytes)
    while (path.length > shared) trie.end[path.pop() as number] = trie.nodes
    for (let depth = shared; depth < bytes.length; depth += 1) {
      const node = trie.nodes
      trie.nodes += 1
      trie.byte[node] = bytes[depth] as number
      trie.depth[node] = depth
      path.push(node)
    }
    const last = path[path.length - 1] as number
    if (trie.tokenCount[last] === 0) trie.firstToken[last] = order
    trie.tokenCount[last] = (trie.tokenCount[last] as number) + 1
    previous = bytes
  })
  for (const node of path) trie.end[node] = trie.nodes
}

function sharedPrefix(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length)
  let shared = 0
  while (shared < length && a[shared] === b[shared]) shared += 1
  return shared
}
