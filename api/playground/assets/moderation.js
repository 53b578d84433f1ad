import { send } from './api.js'
import { byId, element, scoredEntry } from './dom.js'
import { createPanel } from './panel.js'
import { Problem } from './problem.js'

/** The categories of harm in a text. @param {Parameters<typeof createPanel>[1]} page */
export function createModeration(page) {
  const text = byId('moderation-text', HTMLTextAreaElement)
  const result = byId('moderation-result', HTMLElement)
  return createPanel(
    {
      id: 'moderation',
      takes: ({ capabilities }) => capabilities.includes('classify'),
      none: 'No model that classifies is served here. Add one to models.json and start a worker for it.',
      describe: (model) => ({ path: '/v1/moderations', json: { model, input: text.value } }),
      async run(request, signal) {
        if (text.value.trim() === '') throw new Problem('Enter a text to judge.')
        const startedAt = performance.now()
        const { results } = await (await send(request, signal)).json()
        show(result, results[0])
        const seconds = ((performance.now() - startedAt) / 1000).toFixed(2)
        return `${judgedIn(results[0]).length} categories judged · ${seconds} s`
      },
    },
    page,
  )
}

/**
 * @typedef {{ flagged: boolean, categories: Record<string, boolean>,
 *   category_scores: Record<string, number>,
 *   category_applied_input_types: Record<string, readonly string[]> }} Moderation
 */

/** @param {HTMLElement} place @param {Moderation} moderation */
function show(place, moderation) {
  const rows = judgedIn(moderation).map((name) => showCategory(moderation, name))
  place.replaceChildren(
    element('p', {}, moderation.flagged ? 'The text is flagged.' : 'The text is not flagged.'),
    element('ol', {}, ...rows),
  )
  place.hidden = false
}

/** The categories that the model judges, the most probable first. @param {Moderation} moderation */
function judgedIn({ category_scores: scores, category_applied_input_types: types }) {
  return Object.keys(scores)
    .filter((name) => (types[name] ?? []).length > 0)
    .sort((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))
}

/** @param {Moderation} moderation @param {string} name */
function showCategory({ categories, category_scores: scores }, name) {
  const flag = categories[name] ? [element('strong', {}, ' flagged')] : []
  return scoredEntry(scores[name] ?? 0, name, ...flag)
}
