import type { CatalogueModel } from '#shared/catalogue.ts'
import { failure } from '#shared/errors.ts'

/** The categories of the API, which every answer names. */
export const CATEGORIES = [
  ...['harassment', 'harassment/threatening', 'hate', 'hate/threatening', 'illicit'],
  ...['illicit/violent', 'self-harm', 'self-harm/intent', 'self-harm/instructions', 'sexual'],
  ...['sexual/minors', 'violence', 'violence/graphic'],
]
const KNOWN = new Set(CATEGORIES)
/** A category is flagged from this probability on. */
const THRESHOLD = 0.5

/** The judgement of one text or one list of parts. */
interface Moderation {
  readonly flagged: boolean
  readonly categories: Readonly<Record<string, boolean>>
  readonly category_scores: Readonly<Record<string, number>>
  readonly category_applied_input_types: Readonly<Record<string, readonly string[]>>
}

/** The output of a model for one text or image. */
export interface Judgement {
  readonly model: Pick<CatalogueModel, 'id' | 'options'>
  readonly type: 'text' | 'image'
  readonly labels: readonly string[]
  readonly probabilities: readonly number[]
}

/**
 * Maps probabilities of labels to categories; of several judgements the highest counts. Labels map
 * as in `options.categories`, or to the category of their name; other labels are returned under
 * their own name and flag nothing. Categories that no model judges have the score 0 and no type of
 * input. Throws `model_not_supported` for a model that judges none.
 */
export function moderate(judgements: readonly Judgement[]): Moderation {
  const scores = new Map(CATEGORIES.map((name) => [name, 0]))
  const typesOf = new Map<string, Set<string>>()
  for (const { model, type, labels, probabilities } of judgements) {
    const names = labels.map((label) => categoryOf(label, model.options.categories ?? {}))
    if (!names.some((name) => KNOWN.has(name ?? ''))) throw judgesNothing(model.id, labels)
    for (const [index, name] of names.entries()) {
      if (name === null) continue
      scores.set(name, Math.max(scores.get(name) ?? 0, probabilities[index] ?? 0))
      typesOf.set(name, (typesOf.get(name) ?? new Set()).add(type))
    }
  }
  const isFlagged = (name: string): boolean =>
    typesOf.has(name) && (scores.get(name) ?? 0) >= THRESHOLD
  const names = [...scores.keys()]
  return {
    flagged: CATEGORIES.some(isFlagged),
    categories: Object.fromEntries(names.map((name) => [name, isFlagged(name)])),
    category_scores: Object.fromEntries(scores),
    category_applied_input_types: Object.fromEntries(
      names.map((name) => [name, [...(typesOf.get(name) ?? [])]]),
    ),
  }
}

function categoryOf(
  label: string,
  categories: Readonly<Record<string, string | null>>,
): string | null {
  if (Object.hasOwn(categories, label)) return categories[label] ?? null
  const plain = label.toLowerCase().replaceAll(/[\s_-]+/g, ' ')
  return CATEGORIES.find((name) => name.replaceAll('-', ' ') === plain) ?? label
}

function judgesNothing(id: string, labels: readonly string[]): Error {
  const some = labels.slice(0, 10).join(', ')
  return failure.invalidRequest(
    `The model \`${id}\` judges no category of moderation: its labels are ${some}. Name their meanings in options.categories of models.json.`,
    { param: 'model', code: 'model_not_supported' },
  )
}
