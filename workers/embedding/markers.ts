import type { Tokenizer } from '#workers/text/tokenizer.ts'

/** The tokens that a model puts around a text of its own accord, such as `[CLS]` and `[SEP]`. */
export interface Markers {
  readonly before: readonly number[]
  readonly after: readonly number[]
}

/** Learns the markers of a model from one text that is encoded with and without them. */
export function findMarkers(tokenizer: Tokenizer): Markers {
  const marked = tokenizer.encode('a', { addSpecialTokens: true })
  const plain = tokenizer.encode('a', { addSpecialTokens: false })
  const start = marked.indexOf(plain[0] as number)
  return { before: marked.slice(0, start), after: marked.slice(start + plain.length) }
}
