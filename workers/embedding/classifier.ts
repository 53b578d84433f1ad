import type { ClassifyInput } from '#shared/contracts/embedding.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

import { findMarkers } from './markers.ts'
import { readText, readTextCut, readTextSplit } from './read-input.ts'
import { type ClassifierOptions, openSequenceClassifier, sigmoid } from './sequence-classifier.ts'

/** A loaded classifier of texts. */
export interface Classifier {
  readonly contextLength: number
  readonly labels: readonly string[]
  /**
   * The tokens of a text with the markers of the model, in parts that fit into the context. Throws
   * `context_length_exceeded` where `refuse` is asked for and the text has more.
   */
  read(text: string, excess: ClassifyInput['excess']): Promise<readonly (readonly number[])[]>
  /** The probability of each label: together 1, unless several labels may hold at once. */
  classify(tokenIds: readonly number[], signal: AbortSignal): Promise<readonly number[]>
  readonly waitingCount: number
  close(): Promise<void>
}

/** Loads a `…ForSequenceClassification` export. Throws `ModelLoadError`. */
export async function openClassifier(options: ClassifierOptions): Promise<Classifier> {
  const classifier = await openSequenceClassifier(options)
  return closeOnFailure(classifier, async () => {
    const { contextLength, tokenizer, files, labelCount } = classifier
    const { labels = [], isMultiLabel, modelFile } = files
    if (labels.length !== labelCount) {
      throw new ModelLoadError(
        modelFile,
        `config.json names ${labels.length} labels, but the model has ${labelCount}`,
      )
    }
    const markers = findMarkers(tokenizer)
    if (markers.before.length + markers.after.length >= contextLength) {
      throw new ModelLoadError(
        modelFile,
        `a context of ${contextLength} tokens has no room for text beside the markers`,
      )
    }
    const reader = { tokenizer, markers, contextLength }
    const toProbabilities = isMultiLabel || labelCount === 1 ? eachAlone : softmax
    return {
      contextLength,
      labels,
      async read(text, excess) {
        if (excess === 'split') return readTextSplit(reader, text)
        const isCut = excess === 'cut'
        return [
          isCut ? await readTextCut(reader, text, contextLength) : await readText(reader, text),
        ]
      },
      async classify(tokenIds, signal) {
        return toProbabilities(await classifier.logits({ tokenIds }, signal))
      },
      get waitingCount() {
        return classifier.waitingCount
      },
      close: () => classifier.close(),
    }
  })
}

function eachAlone(logits: Float32Array): readonly number[] {
  return Array.from(logits, sigmoid)
}

function softmax(logits: Float32Array): readonly number[] {
  const largest = Math.max(...logits)
  const powers = Array.from(logits, (logit) => Math.exp(logit - largest))
  const sum = powers.reduce((total, power) => total + power, 0)
  return powers.map((power) => power / sum)
}
