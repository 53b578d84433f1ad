import { failure } from '#shared/errors.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

import type { EncodedText } from './encoder-batch.ts'
import { createPairReader } from './pair-input.ts'
import { type ClassifierOptions, openSequenceClassifier } from './sequence-classifier.ts'

/** A loaded model that reads a query and a document together. */
export interface Reranker {
  readonly contextLength: number
  /** A pair with the model's own markers; a long document is cut, as is usual for these models. */
  encodePair(query: string, document: string): EncodedText
  /** The relevance of a pair as a logit: its sigmoid is from 0 to 1. */
  logit(pair: EncodedText, signal: AbortSignal): Promise<number>
  readonly waitingCount: number
  close(): Promise<void>
}

// A query may take at most this share of the context; otherwise no part of the document would be
// read.
const QUERY_SHARE = 0.5

/** Loads a `…ForSequenceClassification` export with one label. Throws `ModelLoadError`. */
export async function openReranker(options: ClassifierOptions): Promise<Reranker> {
  const classifier = await openSequenceClassifier(options)
  return closeOnFailure(classifier, async () => {
    const { contextLength, tokenizer, files, labelCount } = classifier
    // The meaning of several logits is undefined.
    if (labelCount !== 1) {
      throw new ModelLoadError(
        files.modelFile,
        `a cross-encoder must have one label, not ${labelCount}`,
      )
    }
    return {
      contextLength,
      encodePair: createPairEncoder(tokenizer, contextLength),
      async logit(pair, signal) {
        const [logit = Number.NaN] = await classifier.logits(pair, signal)
        return logit
      },
      get waitingCount() {
        return classifier.waitingCount
      },
      close: () => classifier.close(),
    }
  })
}

/** Builds pairs with the markers of the model. */
function createPairEncoder(tokenizer: Tokenizer, contextLength: number): Reranker['encodePair'] {
  const { room, encode, join } = createPairReader(tokenizer, contextLength)
  return (query, document) => {
    const queryIds = encode(query)
    if (queryIds.length > room * QUERY_SHARE) {
      throw failure.invalidRequest(
        `The query has ${queryIds.length} tokens; this model reads at most ${Math.floor(room * QUERY_SHARE)}.`,
        { param: 'query', code: 'context_length_exceeded' },
      )
    }
    const documentIds = encode(document).slice(0, room - queryIds.length)
    return join(queryIds, documentIds)
  }
}
