import type { CatalogueModel } from '#shared/catalogue.ts'
import { failure } from '#shared/errors.ts'

/** The categories of the API, which every answer names. */
export const CATEGORIES = [
  ...['harassment', 'harassment/threatening', 'hate', 'hate/threatening', 'illicit'],
  ...['illicit/violent', 'self-harm', 'self-harm/intent', 'self-harm/instructions', 'sexual'],
  ...['sexual/minors', 'violence', 'violence/graphic'],
]
const KNOWN = new Set(CATEGORIES)
/** The probability from which a category is flagged. */
const THRESHOLD = 0.5

/** How one text or one list of parts was judged. */
interface Moderation {
  readonly flagged: boolean
  readonly categories: Readonly<Record<string, boolean>>
  readonly category_scores: Readonly<Record<string, number>>
  readonly category_applied_input_types: Readonly<Record<string, readonly string[]>>
}

/**
 * Reads probabilities of a model's labels as categories. Labels mean what `options.categories`
 * says, or the category of their name; others are shown under their own name and flag nothing.
 * Categories that the model does not judge have the score 0 and apply to no type of input. Throws
 * `model_not_supported` for a model that judges none.
 */
export function moderate(
  model: Pick<CatalogueModel, 'id' | 'options'>,
  labels: readonly string[],
  probabilities: readonly number[],
): Moderation {
  const scores = new Map(CATEGORIES.map((name) => [name, 0]))
  const judged = new Set<string>()
  for (const [index, label] of labels.entries()) {
    const category = categoryOf(label, model.options.categories ?? {})
    if (category === null) continue
    scores.set(category, Math.max(scores.get(category) ?? 0, probabilities[index] ?? 0))
    judged.add(category)
  }
  const flagging = [...judged].filter((category) => KNOWN.has(category))
  if (flagging.length === 0) throw judgesNothing(model.id, labels)
  const isFlagged = (name: string): boolean =>
    judged.has(name) && (scores.get(name) ?? 0) >= THRESHOLD
  const names = [...scores.keys()]
  return {
    flagged: flagging.some(isFlagged),
    categories: Object.fromEntries(names.map((name) => [name, isFlagged(name)])),
    category_scores: Object.fromEntries(scores),
    category_applied_input_types: Object.fromEntries(
      names.map((name) => [name, judged.has(name) ? ['text'] : []]),
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
