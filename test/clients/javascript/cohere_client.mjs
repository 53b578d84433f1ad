import { CohereClientV2 } from 'cohere-ai'

import { EMBED, expect, feature, key, RERANK, statusOf, TEXTS, url } from './features.mjs'

// Cohere's official client; of its dialect rerank and embed are served.

const client = new CohereClientV2({ token: key, environment: url })
const asked = { query: 'capital of France', documents: TEXTS }

await feature('rerank', async () => {
  const { results } = await client.rerank({ model: RERANK, topN: 1, ...asked })
  expect(
    results.map(({ index }) => index),
    [0],
  )
})

await feature('embeddings', async () => {
  const { embeddings } = await client.embed({
    model: EMBED,
    texts: TEXTS,
    inputType: 'search_query',
    embeddingTypes: ['float'],
  })
  expect(embeddings.float.length, 2)
})

await feature('errors', async () => {
  expect(await statusOf(client.rerank({ model: 'none', ...asked })), 404)
})
