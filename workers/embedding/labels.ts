import { isRecord } from '#shared/json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

/** The labels of a classifier in config.json. */
export interface ModelLabels {
  /** In the order of the logits. */
  readonly labels: readonly string[]
  /** Whether several labels may hold at once. */
  readonly isMultiLabel: boolean
}

const LABELS_MAX = 1000
const LABEL_CHARS_MAX = 200
// transformers omits the labels in config.json if there are two without names.
const LABEL_COUNT_UNSTATED = 2

/** The labels of a configuration; numbered ones if it has only their count, or none. */
export function readLabels(config: Readonly<Record<string, unknown>>): ModelLabels {
  return {
    labels: labelsOf(config),
    isMultiLabel: config.problem_type === 'multi_label_classification',
  }
}

function labelsOf({
  id2label,
  num_labels: count = LABEL_COUNT_UNSTATED,
}: Readonly<Record<string, unknown>>): readonly string[] {
  if (isRecord(id2label)) {
    const ids = Object.keys(id2label).toSorted((one, other) => Number(one) - Number(other))
    return ids.map((id) => String(id2label[id]))
  }
  if (typeof count !== 'number' || !(count >= 1)) return []
  // One more than allowed, so that a longer list is refused.
  const length = Math.min(Math.floor(count), LABELS_MAX + 1)
  return Array.from({ length }, (_, id) => `LABEL_${id}`)
}

/**
 * Checks the labels of a graph with this many logits. Throws `ModelLoadError` for too many or too
 * long labels, and for another number of them.
 */
export function checkLabels(file: string, labels: readonly string[], logitCount: number): void {
  if (Math.max(labels.length, logitCount) > LABELS_MAX) {
    throw new ModelLoadError(
      file,
      `a classifier may have at most ${LABELS_MAX} labels, but this one has more`,
    )
  }
  const long = labels.findIndex((label) => label.length > LABEL_CHARS_MAX)
  if (long >= 0) {
    throw new ModelLoadError(
      file,
      `label ${long} of config.json has more than ${LABEL_CHARS_MAX} characters`,
    )
  }
  if (labels.length === logitCount) return
  throw new ModelLoadError(
    file,
    `config.json names ${labels.length} labels, but the model has ${logitCount}`,
  )
}

/**
 * Converts logits to probabilities that sum to 1, or are independent if several labels may hold at
 * once.
 */
export function activationOf({
  labels,
  isMultiLabel,
}: ModelLabels): (logits: readonly number[]) => readonly number[] {
  return isMultiLabel || labels.length === 1 ? (logits) => logits.map(sigmoid) : softmax
}

/** The independent probability of a logit. */
export function sigmoid(logit: number): number {
  return 1 / (1 + Math.exp(-logit))
}

/** Probabilities that sum to 1. */
export function softmax(logits: readonly number[]): readonly number[] {
  const largest = Math.max(...logits)
  const powers = logits.map((logit) => Math.exp(logit - largest))
  const sum = powers.reduce((total, power) => total + power, 0)
  return powers.map((power) => power / sum)
}
