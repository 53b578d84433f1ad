import { isRecord } from '#shared/json.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

/** The tokens that a model adds around a text, such as `[CLS]` and `[SEP]`. */
export interface Markers {
  readonly before: readonly number[]
  readonly after: readonly number[]
}

/** The markers of texts that are read unchanged. */
export const NO_MARKERS: Markers = { before: [], after: [] }

/** The markers of two texts that are read together. */
interface PairMarkers extends Markers {
  readonly between: readonly number[]
  /** The type ids of tokens up to the second text, and from there on. */
  readonly types: readonly [number, number]
}

/**
 * Determines the markers of a model from a text that is encoded with and without them. An end token
 * that only `tokenizer_config.json` requires is added, because decoders' embeddings are its vector.
 */
export function findMarkers(
  tokenizer: Tokenizer,
  { add_eos_token: hasEnd, eos_token: end }: Readonly<Record<string, unknown>> = {},
): Markers {
  const marked = tokenizer.encode('a', { addSpecialTokens: true })
  const plain = tokenizer.encode('a', { addSpecialTokens: false })
  const start = Math.max(findRun(marked, plain, 0), 0)
  const before = marked.slice(0, start)
  const after = marked.slice(start + plain.length)
  const content = isRecord(end) ? end.content : end
  const endId = hasEnd === true ? tokenizer.findTokenId(String(content)) : undefined
  return { before, after: endId === undefined || after.includes(endId) ? after : [...after, endId] }
}

/**
 * Determines the markers of a pair: `[CLS] a [SEP] b [SEP]`, `<s> a </s></s> b </s>` and others.
 */
export function findPairMarkers(tokenizer: Tokenizer): PairMarkers {
  const { tokenIds, typeIds } = tokenizer.encodePair('a', 'a')
  const plain = tokenizer.encode('a', { addSpecialTokens: false })
  const first = findRun(tokenIds, plain, 0)
  const second = findRun(tokenIds, plain, first + plain.length)
  if (first < 0 || second < 0) throw new Error('its tokenizer cannot read two texts together')
  return {
    before: tokenIds.slice(0, first),
    between: tokenIds.slice(first + plain.length, second),
    after: tokenIds.slice(second + plain.length),
    types: [typeIds[first] ?? 0, typeIds[second] ?? 0],
  }
}

/** The index of a run of ids in a list, starting at `from`; -1 if absent. */
function findRun(ids: readonly number[], run: readonly number[], from: number): number {
  for (let at = from; at + run.length <= ids.length; at++) {
    if (run.every((id, index) => ids[at + index] === id)) return at
  }
  return -1
}
