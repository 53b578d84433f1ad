import type { Static } from 'typebox'

import {
  invalidValue,
  missingParameter,
  optionalBoolean,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { type ClassifyInput, PAIRS_MAX } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

const LABELS_MAX = 1000
const LABEL_CHARS_MAX = 200
const LABEL = Type.String({ minLength: 1, maxLength: LABEL_CHARS_MAX })
const TEMPLATE = 'This example is {}.' // of the pipeline of transformers

const labels = (description: string) =>
  Type.Optional(
    Type.Union(
      [
        nullable(Type.String({ minLength: 1, maxLength: 100_000 })),
        Type.Array(LABEL, { minItems: 1, maxItems: LABELS_MAX }),
      ],
      { description },
    ),
  )

/** The fields of a classification by labels of the request. */
export const CANDIDATE_FIELDS = {
  candidate_labels: labels(
    'Classify by these labels, or by those of a comma-separated string. Needs a model of natural language inference; texts that do not fit are truncated.',
  ),
  labels: labels('Another name of `candidate_labels`.'),
  hypothesis_template: optionalString({
    maxLength: 1000,
    description: `What a label says of a text, with one \`{}\` for the label; \`${TEMPLATE}\` if absent.`,
  }),
  multi_label: optionalBoolean({
    default: false,
    description: 'Whether several labels may apply at once.',
  }),
}
const FIELDS = Type.Object(CANDIDATE_FIELDS)
type CandidateFields = Static<typeof FIELDS>

/**
 * The labels of a request and their hypotheses; undefined without labels. Throws for faults that
 * the schema cannot express.
 */
export function candidatesOf(body: CandidateFields): ClassifyInput['zeroShot'] {
  const { hypothesis_template: template, multi_label: isMultiLabel } = body
  const name = body.candidate_labels ? 'candidate_labels' : 'labels'
  const given = body.candidate_labels ?? body.labels
  if (given === null || given === undefined) {
    if (template || isMultiLabel) throw missingParameter('candidate_labels')
    return undefined
  }
  if (body.candidate_labels && body.labels) {
    throw invalidValue('labels', "it is another name of 'candidate_labels', which is there too.")
  }
  const found = typeof given === 'string' ? splitAtCommas(given) : given
  if (found.length === 0 || found.length > LABELS_MAX) {
    throw invalidValue(name, `expected 1 to ${LABELS_MAX} labels, but got ${found.length}.`)
  }
  if (found.some(({ length }) => length > LABEL_CHARS_MAX)) {
    throw invalidValue(name, `a label may have at most ${LABEL_CHARS_MAX} characters.`)
  }
  // Several placeholders would multiply the labels; the pipeline of transformers fills in one, too.
  const [before = '', after, ...more] = (template ?? TEMPLATE).split('{}')
  if (after === undefined || more.length > 0) {
    throw invalidValue('hypothesis_template', "expected one '{}' for the label.")
  }
  return {
    labels: found,
    hypotheses: found.map((label) => `${before}${label}${after}`),
    isMultiLabel: isMultiLabel ?? false,
  }
}

function splitAtCommas(text: string): readonly string[] {
  return text.split(',').flatMap((label) => label.trim() || [])
}

/** Throws for options that labels of the request exclude. */
export function checkZeroShot({ items, zeroShot, hasMarkers, isActivated }: ClassifyInput): void {
  if (zeroShot === undefined) return
  const refuse = (param: string, reason: string): never => {
    throw invalidValue(param, `${reason} where labels are given.`)
  }
  if (!hasMarkers) refuse('add_special_tokens', 'markers are needed')
  if (!isActivated) refuse('use_activation', 'the answer has probabilities')
  if (items.some((item) => typeof item !== 'string')) refuse('input', 'expected texts')
  const pairs = items.length * zeroShot.labels.length
  if (pairs <= PAIRS_MAX) return
  throw failure.invalidRequest(
    `Invalid 'input': ${items.length} texts and ${zeroShot.labels.length} labels are ${pairs} pairs, of ${PAIRS_MAX} that one request may have.`,
    { param: 'input', code: 'array_above_max_length' },
  )
}
