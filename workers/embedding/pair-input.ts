import type { TruncationSide } from '#shared/contracts/embedding.ts'
import { contentOnly } from '#workers/text/content-spans.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

import type { EncodedText } from './encoder-batch.ts'
import { findPairMarkers } from './markers.ts'
import { truncateText } from './read-input.ts'

/** Reads two texts together, with the markers of the model. */
interface PairReader {
  /** Tokens of both texts that fit into the context in addition to the markers. */
  readonly room: number
  /** Tokens of one text; of a very long one, a part with more tokens than can fit. */
  encode(text: string, side?: TruncationSide): readonly number[]
  /** Both texts with the markers of the model. */
  join(first: readonly number[], second: readonly number[]): EncodedText
}

/** Maximum characters of a token in these vocabularies, which bounds the text that can fit. */
export const CHARS_PER_TOKEN_MAX = 32

/** Determines the markers of a model. Throws when its tokenizer does not support pairs. */
export function createPairReader(tokenizer: Tokenizer, contextLength: number): PairReader {
  const { before, between, after, types } = findPairMarkers(tokenizer)
  return {
    room: contextLength - before.length - between.length - after.length,
    encode(whole, side) {
      const charsMax = contextLength * CHARS_PER_TOKEN_MAX
      const { text, content } = contentOnly(truncateText(whole, charsMax, side))
      return tokenizer.encode(text, { addSpecialTokens: false, content })
    },
    join(one, other) {
      const first = [...before, ...one, ...between]
      const second = [...other, ...after]
      const typeIds = [...first.map(() => types[0]), ...second.map(() => types[1])]
      return { tokenIds: [...first, ...second], typeIds }
    },
  }
}
