import type { TruncationSide } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

import type { EncodedText } from './encoder-batch.ts'
import { softmax } from './labels.ts'
import { createPairReader } from './pair-input.ts'
import { refuseAbove, truncate } from './read-input.ts'

/**
 * Classifies by labels of the request with a model of natural language inference: each label is a
 * hypothesis about the text, and its logit is that of entailment.
 */
export interface ZeroShot {
  /**
   * Pairs of each text and each hypothesis, text by text. Texts are cut so that a pair has at most
   * `tokensMax` tokens; throws `invalidRequest` for a hypothesis that does not fit.
   */
  readPairs(
    texts: readonly string[],
    hypotheses: readonly string[],
    tokensMax: number | undefined,
    side?: TruncationSide,
  ): Iterable<EncodedText>
  /**
   * The probability of each label from the logits of its pair: they sum to 1, or are independent.
   */
  toProbabilities(logits: readonly (readonly number[])[], isMultiLabel: boolean): readonly number[]
}

/** Returns undefined for a model without a label of entailment. */
export function createZeroShot(
  tokenizer: Tokenizer,
  { labels, contextLength }: { readonly labels: readonly string[]; readonly contextLength: number },
): ZeroShot | undefined {
  const entailment = labels.findIndex((label) => label.toLowerCase().startsWith('entail'))
  if (entailment < 0) return undefined
  // As in the pipeline of transformers.
  const contradiction = entailment === 0 ? labels.length - 1 : 0
  const reader = createPairReader(tokenizer, contextLength)
  const logitOf = (row: readonly number[], label: number): number => row[label] ?? Number.NaN
  return {
    *readPairs(texts, hypotheses, tokensMax = contextLength, side = 'right') {
      refuseAbove(contextLength, tokensMax)
      const room = reader.room - (contextLength - tokensMax)
      const seconds = hypotheses.map((hypothesis) => reader.encode(hypothesis))
      const longest = Math.max(...seconds.map(({ length }) => length))
      if (longest > room) throw hypothesisTooLong(longest, room)
      for (const text of texts) {
        const first = reader.encode(text, side)
        for (const second of seconds) {
          yield reader.join(truncate(first, room - second.length, side), second)
        }
      }
    },
    toProbabilities(logits, isMultiLabel) {
      if (!isMultiLabel && logits.length > 1) {
        return softmax(logits.map((row) => logitOf(row, entailment)))
      }
      return logits.map((row) => {
        const [, probability = Number.NaN] = softmax([
          logitOf(row, contradiction),
          logitOf(row, entailment),
        ])
        return probability
      })
    },
  }
}

function hypothesisTooLong(tokens: number, room: number): Error {
  return failure.invalidRequest(
    `A label in 'hypothesis_template' has ${tokens} tokens; this request has room for ${Math.max(room, 0)}.`,
    { param: 'candidate_labels', code: 'context_length_exceeded' },
  )
}
