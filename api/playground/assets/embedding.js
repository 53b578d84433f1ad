import { send } from './api.js'
import { byId, element, scoredEntry } from './dom.js'
import { createPanel } from './panel.js'
import { Problem } from './problem.js'

const TEXTS_MAX = 100

/** The similarity of texts to one text. @param {Parameters<typeof createPanel>[1]} page */
export function createEmbedding(page) {
  const query = byId('embedding-query', HTMLTextAreaElement)
  const texts = byId('embedding-texts', HTMLTextAreaElement)
  const result = byId('embedding-result', HTMLElement)
  const lines = () =>
    texts.value
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '')
  return createPanel(
    {
      id: 'embedding',
      takes: ({ kind, capabilities }) =>
        kind === 'embedding' &&
        !['rerank', 'classify', 'sparse', 'multi-vector'].some((task) =>
          capabilities.includes(task),
        ),
      none: 'No embedding model is served here. Add one to models.json and start a worker for it.',
      describe: (model) => ({
        path: '/v1/embeddings',
        json: { model, input: [query.value.trim(), ...lines()] },
      }),
      async run(request, signal) {
        const compared = lines()
        if (compared.length === 0) throw new Problem('Enter at least one text to compare with.')
        if (compared.length > TEXTS_MAX)
          throw new Problem(`Compare at most ${TEXTS_MAX} texts at once.`)
        const startedAt = performance.now()
        const { data, usage } = await (await send(request, signal)).json()
        /** @type {number[][]} */
        const vectors = data.map((/** @type {{ embedding: number[] }} */ entry) => entry.embedding)
        const [first = [], ...others] = vectors
        const ranked = others
          .map((vector, index) => ({ text: compared[index] ?? '', score: cosine(first, vector) }))
          .sort((a, b) => b.score - a.score)
        result.replaceChildren(
          element('ol', {}, ...ranked.map(({ text, score }) => scoredEntry(score, text))),
        )
        result.hidden = false
        const seconds = ((performance.now() - startedAt) / 1000).toFixed(2)
        return `${usage.prompt_tokens} tokens · ${first.length} dimensions · ${seconds} s`
      },
    },
    page,
  )
}

/**
 * The cosine of the angle between two vectors. @param {readonly number[]} a @param {readonly
 * number[]} b
 */
export function cosine(a, b) {
  let dot = 0
  let aa = 0
  let bb = 0
  for (const [index, value] of a.entries()) {
    const other = b[index] ?? 0
    dot += value * other
    aa += value * value
    bb += other * other
  }
  return aa === 0 || bb === 0 ? 0 : dot / Math.sqrt(aa * bb)
}
