import { type CatalogueModel, servingIdOf } from '#shared/catalogue.ts'
import { failure } from '#shared/errors.ts'

const PAGE_DEFAULT = 20
const PAGE_MAX = 1000

/** A model as clients of Anthropic's dialect read it. */
export function presentModelInfo(
  model: CatalogueModel,
  contextLengths: ReadonlyMap<string, number>,
): object {
  const contextLength = contextLengths.get(servingIdOf(model)) ?? null
  return {
    type: 'model',
    id: model.id,
    display_name: model.id,
    created_at: new Date(model.created * 1000).toISOString(),
    lifecycle: 'active',
    max_input_tokens: contextLength,
    max_tokens: contextLength,
  }
}

/** A page of models: `limit` of them after `after_id`, or before `before_id`. */
export function presentModelInfos(
  models: readonly CatalogueModel[],
  contextLengths: ReadonlyMap<string, number>,
  query: unknown,
): object {
  const { limit, after_id: afterId, before_id: beforeId } = query as Record<string, unknown>
  const size = limit === undefined ? PAGE_DEFAULT : Number(limit)
  if (!Number.isInteger(size) || size < 1 || size > PAGE_MAX) {
    throw failure.invalidRequest(`limit: must be an integer from 1 to ${PAGE_MAX}`, {
      param: 'limit',
    })
  }
  const at = (id: unknown): number => models.findIndex((model) => model.id === id)
  const end = beforeId === undefined ? models.length : at(beforeId)
  const start = beforeId === undefined ? at(afterId) + 1 : Math.max(0, end - size)
  const page = models.slice(start, Math.min(end, start + size))
  return {
    data: page.map((model) => presentModelInfo(model, contextLengths)),
    has_more: beforeId === undefined ? start + size < end : start > 0,
    first_id: page[0]?.id ?? null,
    last_id: page.at(-1)?.id ?? null,
  }
}
