import type { ClassifyInput } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import type { EncodedText } from './encoder-batch.ts'
import { activationOf, checkLabels } from './labels.ts'
import { findMarkers, NO_MARKERS } from './markers.ts'
import { readText, readTextCut, readTextSplit, readTokenIds } from './read-input.ts'
import { type ClassifierOptions, openSequenceClassifier } from './sequence-classifier.ts'
import { createZeroShot, type ZeroShot } from './zero-shot.ts'

/** The options for reading the items of a request. */
type Reading = Pick<ClassifyInput, 'tokensMax' | 'truncationSide' | 'hasMarkers'>

/** A loaded classifier of texts. */
export interface Classifier {
  readonly contextLength: number
  readonly labels: readonly string[]
  /**
   * The tokens of an item in parts that fit into the context. Throws `context_length_exceeded` if
   * it has more and may not be cut or split.
   */
  read(item: string | readonly number[], reading: Reading): Promise<readonly (readonly number[])[]>
  /** One logit for each label. */
  logits(text: EncodedText, signal: AbortSignal): Promise<readonly number[]>
  /** The probability of each label: they sum to 1, unless several labels may hold at once. */
  toProbabilities(logits: readonly number[]): readonly number[]
  /** Undefined for models that were not trained for it. */
  readonly zeroShot: ZeroShot | undefined
  readonly waitingCount: number
  close(): Promise<void>
}

/** Loads a `…ForSequenceClassification` export. Throws `ModelLoadError`. */
export async function openClassifier(options: ClassifierOptions): Promise<Classifier> {
  const classifier = await openSequenceClassifier(options)
  return closeOnFailure(classifier, async () => {
    const { contextLength, tokenizer, files, labelCount } = classifier
    const { labels, modelFile } = files
    checkLabels(modelFile, labels, labelCount)
    const markers = findMarkers(tokenizer)
    if (markers.before.length + markers.after.length >= contextLength) {
      throw new ModelLoadError(
        modelFile,
        `a context of ${contextLength} tokens has no room for text besides the markers`,
      )
    }
    const reader = { tokenizer, markers, contextLength }
    return {
      contextLength,
      labels,
      async read(item, reading) {
        const parts = await readParts(reader, item, reading)
        const { endId } = files
        if (endId === undefined || parts.every((part) => part.includes(endId))) return parts
        throw noEnd(endId)
      },
      async logits(text, signal) {
        return [...(await classifier.logits(text, signal))]
      },
      toProbabilities: activationOf(files),
      zeroShot: createZeroShot(tokenizer, { labels, contextLength }),
      get waitingCount() {
        return classifier.waitingCount
      },
      close: () => classifier.close(),
    }
  })
}

/** The tokens of an item in parts that fit into the context. */
async function readParts(
  reader: Parameters<typeof readText>[0],
  item: Parameters<Classifier['read']>[0],
  { tokensMax, truncationSide: side, hasMarkers }: Reading,
): Promise<readonly (readonly number[])[]> {
  const own = hasMarkers ? reader : { ...reader, markers: NO_MARKERS }
  const kept = tokensMax === 'context' ? reader.contextLength : tokensMax
  if (typeof item !== 'string') {
    return [readTokenIds(own, item, kept === 'split' ? undefined : kept, side)]
  }
  if (kept === 'split') return readTextSplit(own, item)
  const part = await (kept === undefined ? readText(own, item) : readTextCut(own, item, kept, side))
  if (part.length === 0) throw noTokens()
  return [part]
}

function noTokens(): Error {
  return failure.invalidRequest(
    "Invalid 'input': a text has no tokens, and 'add_special_tokens' is false.",
    { param: 'input', code: 'invalid_value' },
  )
}

function noEnd(endId: number): Error {
  return failure.invalidRequest(
    `Invalid 'input': this model reads its end token (${endId}), and a text has none. Texts have it unless 'add_special_tokens' is false; token ids need it.`,
    { param: 'input', code: 'invalid_value' },
  )
}
